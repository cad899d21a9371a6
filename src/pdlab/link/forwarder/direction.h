/* One way through the link, on a thread of its own: from one TUN device to the other.
 *
 * A packet is read as soon as it is there, then loses segments to chance and to a full queue, waits
 * for the line, flies, and is written when it is due. When the line is free and when a packet is due
 * are computed, not waited for: a thread that wakes late delays packets by that much, and the line
 * has carried meanwhile what waited for it.
 */
#ifndef DIRECTION_H
#define DIRECTION_H

#include <pthread.h>

#include "impairments.h"
#include "packet.h"
#include "ring.h"

struct counters {
    uint64_t packets, bytes; /* delivered, as on the wire */
    uint64_t lost, dropped;  /* by chance; for lack of room in queue or memory */
    uint64_t cut, refused;   /* by a cut; by the device that should take them */
};

/* The line of text that sets all of it: see main.c. */
struct profile {
    int64_t delay_ns, jitter_ns;
    double bits_per_s, loss;
    uint64_t queue_bytes;
};

struct direction {
    int from_fd, to_fd, wake_fd;
    struct rate rate;
    struct queue queue;
    struct loss loss;
    struct delay delay;
    struct cut cut;
    struct ring ring;
    struct counters counters;
    uint8_t scratch[PACKET_MAX];

    pthread_mutex_t mutex; /* for what other threads see, below */
    struct profile profile;
    int64_t cut_until_ns;
    int has_orders;
    struct counters published;
};

/* 0, or -1 with errno. Nothing passes before the first profile. */
int direction_open(struct direction *direction, int from_fd, int to_fd);

/* The thread: `direction` is a struct direction. It ends with the process. */
void *direction_run(void *direction);

/* For other threads: what is ordered holds from the thread's next turn. */
void direction_order(struct direction *direction, const struct profile *profile);
void direction_order_cut(struct direction *direction, int64_t for_ns);
struct counters direction_counters(struct direction *direction);

#endif
