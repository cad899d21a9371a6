/* What makes a path worse than a cable, one small thing each; `now` is always an argument.
 *
 * Times are nanoseconds of the monotonic clock. Each may be changed while packets are on their way.
 */
#ifndef IMPAIRMENTS_H
#define IMPAIRMENTS_H

#include <stdint.h>

/* A line of so many bits per second, 0 for any number: one packet after the other. */
struct rate {
    double bits_per_s;
    int64_t free_ns; /* when the last packet's last bit has left */
};

/* When the last bit of a packet that came at `arrived_ns` leaves. */
int64_t rate_leaves_ns(const struct rate *rate, int64_t arrived_ns, uint64_t wire_bytes);

/* The packets that wait for the line; what does not fit is dropped at the tail. */
struct queue {
    uint64_t limit_bytes, used_bytes;
};

uint64_t queue_room(const struct queue *queue);

/* Each packet on the wire is lost with probability `share`, whatever happened before. */
struct loss {
    double share;
    uint64_t random;
    uint64_t num_spared; /* packets that still pass before the next one is lost */
};

void loss_set(struct loss *loss, double share);
/* How many of `num` packets pass before one is lost: `num` when none is. */
uint32_t loss_spares(struct loss *loss, uint32_t num);

/* A constant delay, and a jitter between 0 and `jitter_ns` that never lets packets overtake. */
struct delay {
    int64_t delay_ns, jitter_ns;
    int64_t last_due_ns;
    uint64_t random;
};

int64_t delay_due_ns(struct delay *delay, int64_t leaves_ns);

/* A broken cable: nothing passes until `until_ns`. */
struct cut {
    int64_t until_ns;
};

int cut_at(const struct cut *cut, int64_t now_ns);

#endif
