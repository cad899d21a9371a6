#define _GNU_SOURCE
#include "direction.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ll
#define RESERVED_BYTES (2ull << 30) /* of address space */
#define SPARE_BYTES (4ull << 20)    /* beyond what the profile has on its way */
#define PACKETS_PER_TURN 8          /* that are read, or written, before the other has its turn */
#define EARLY_NS 300000 /* a core that slept for long wakes late: so it wakes early, and again */

static int64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

int direction_open(struct direction *direction, int from_fd, int to_fd) {
    direction->from_fd = from_fd;
    direction->to_fd = to_fd;
    direction->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&direction->mutex, NULL);
    if (getrandom(&direction->loss.random, sizeof(uint64_t), 0) < 0 ||
        getrandom(&direction->delay.random, sizeof(uint64_t), 0) < 0)
        return -1;
    direction->loss.random |= 1;
    direction->delay.random |= 1;
    if (direction->wake_fd < 0)
        return -1;
    return ring_open(&direction->ring, RESERVED_BYTES);
}

/* What a line with a rate has on its way at most, and a quarter more for our headers and small
 * packets; 0 when nothing bounds it. */
static size_t memory_for(const struct profile *profile) {
    if (profile->bits_per_s <= 0)
        return 0;
    const double seconds = (double)(profile->delay_ns + profile->jitter_ns) / NS_PER_S;
    const double bytes = profile->bits_per_s / 8 * seconds + (double)profile->queue_bytes;
    return (size_t)(1.25 * bytes) + SPARE_BYTES;
}

void direction_order(struct direction *direction, const struct profile *profile) {
    ring_touch(&direction->ring, memory_for(profile));
    pthread_mutex_lock(&direction->mutex);
    direction->profile = *profile;
    direction->has_orders = 1;
    pthread_mutex_unlock(&direction->mutex);
    eventfd_write(direction->wake_fd, 1);
}

void direction_order_cut(struct direction *direction, int64_t for_ns) {
    pthread_mutex_lock(&direction->mutex);
    direction->cut_until_ns = monotonic_ns() + for_ns;
    pthread_mutex_unlock(&direction->mutex);
    eventfd_write(direction->wake_fd, 1);
}

struct counters direction_counters(struct direction *direction) {
    pthread_mutex_lock(&direction->mutex);
    const struct counters counters = direction->published;
    pthread_mutex_unlock(&direction->mutex);
    return counters;
}

static void apply(struct direction *direction, const struct profile *profile) {
    direction->rate.bits_per_s = profile->bits_per_s;
    direction->queue.limit_bytes = profile->queue_bytes;
    loss_set(&direction->loss, profile->loss);
    direction->delay.delay_ns = profile->delay_ns;
    direction->delay.jitter_ns = profile->jitter_ns;
    const size_t limit = memory_for(profile);
    ring_set_limit(&direction->ring, limit ? limit : RESERVED_BYTES);
}

/* Other threads hold the mutex for a moment only, so this one never waits for long. */
static void take_orders(struct direction *direction) {
    pthread_mutex_lock(&direction->mutex);
    if (direction->has_orders)
        apply(direction, &direction->profile);
    direction->has_orders = 0;
    direction->cut.until_ns = direction->cut_until_ns;
    direction->published = direction->counters;
    pthread_mutex_unlock(&direction->mutex);
}

static void enqueue(struct direction *direction, struct entry *entry, uint64_t wire_bytes,
                    int64_t now_ns) {
    entry->arrived_ns = now_ns;
    entry->wire_bytes = wire_bytes;
    direction->queue.used_bytes += wire_bytes;
    ring_push(&direction->ring, entry);
}

/* A run of segments that were not lost: as many of them as the queue and the memory have room for. */
static void admit_run(struct direction *direction, const struct packet *packet, uint32_t first,
                      uint32_t num, int64_t now_ns) {
    const uint64_t room = queue_room(&direction->queue);
    uint32_t fitting = num;
    while (fitting > 0 && packet_wire_bytes(packet, first, fitting) > room)
        fitting--;
    struct entry *entry = fitting ? ring_reserve(&direction->ring, packet->size) : NULL;
    if (entry == NULL)
        fitting = 0;
    direction->counters.dropped += num - fitting;
    if (fitting == 0)
        return;
    entry->size = packet_cut(packet, first, fitting, entry->bytes);
    enqueue(direction, entry, packet_wire_bytes(packet, first, fitting), now_ns);
}

/* The way of a packet that loses segments: what is left of it. */
static void admit_cut(struct direction *direction, const struct packet *packet, uint32_t spared,
                      int64_t now_ns) {
    uint32_t first = 0;
    for (;;) {
        if (spared > 0)
            admit_run(direction, packet, first, spared, now_ns);
        first += spared;
        if (first >= packet->num_segments)
            return;
        direction->counters.lost++;
        first++;
        spared = loss_spares(&direction->loss, packet->num_segments - first);
    }
}

/* The packet just read: `entry` holds it in place, or it is in `scratch` for lack of memory. */
static void admit(struct direction *direction, struct entry *entry, size_t size, int64_t now_ns) {
    uint8_t *bytes = entry ? entry->bytes : direction->scratch;
    struct packet packet = packet_parse(bytes, size);
    if (cut_at(&direction->cut, now_ns)) {
        direction->counters.cut += packet.num_segments;
        return;
    }
    const uint32_t spared = loss_spares(&direction->loss, packet.num_segments);
    const uint64_t wire_bytes = packet_wire_bytes(&packet, 0, packet.num_segments);
    if (entry && spared == packet.num_segments && wire_bytes <= queue_room(&direction->queue)) {
        entry->size = size;
        enqueue(direction, entry, wire_bytes, now_ns);
        return;
    }
    if (entry)
        memcpy(direction->scratch, bytes, size); /* what is left is written over it */
    packet.bytes = direction->scratch;
    admit_cut(direction, &packet, spared, now_ns);
}

/* Packets whose last bit has left the line by `now_ns` fly, and get the delay of that moment. */
static void depart(struct direction *direction, int64_t now_ns) {
    struct entry *entry;
    while ((entry = direction->ring.queued) != NULL) {
        const int64_t leaves_ns =
            rate_leaves_ns(&direction->rate, entry->arrived_ns, entry->wire_bytes);
        if (leaves_ns > now_ns)
            return;
        direction->rate.free_ns = leaves_ns;
        direction->queue.used_bytes -= entry->wire_bytes;
        entry->due_ns = delay_due_ns(&direction->delay, leaves_ns);
        ring_fly(&direction->ring);
    }
}

/* Read what is there, at most `PACKETS_PER_TURN` packets; whether there may be more. */
static int receive(struct direction *direction) {
    for (int turn = 0; turn < PACKETS_PER_TURN; turn++) {
        struct entry *entry = ring_reserve(&direction->ring, PACKET_MAX);
        uint8_t *bytes = entry ? entry->bytes : direction->scratch;
        const ssize_t size = read(direction->from_fd, bytes, PACKET_MAX);
        if (size > (ssize_t)sizeof(struct virtio_net_hdr)) {
            const int64_t now_ns = monotonic_ns();
            depart(direction, now_ns); /* so that the queue is as it is now */
            admit(direction, entry, (size_t)size, now_ns);
        } else if (size >= 0 || errno == EAGAIN || errno == EINTR || errno == EIO) {
            return 0; /* EIO: the device is down */
        } else {
            perror("link forwarder: read");
            exit(1); /* the device is gone */
        }
    }
    return 1;
}

static void deliver(struct direction *direction, int64_t now_ns) {
    for (int turn = 0; turn < PACKETS_PER_TURN; turn++) {
        const struct entry *entry = ring_flying(&direction->ring);
        if (entry == NULL || entry->due_ns > now_ns)
            return;
        const struct packet packet = packet_parse(entry->bytes, entry->size);
        if (cut_at(&direction->cut, now_ns)) {
            direction->counters.cut += packet.num_segments;
        } else if (write(direction->to_fd, entry->bytes, entry->size) < 0) {
            direction->counters.refused += packet.num_segments;
        } else {
            direction->counters.packets += packet.num_segments;
            direction->counters.bytes += entry->wire_bytes;
        }
        ring_pop(&direction->ring);
    }
}

/* When something happens next if nothing comes, or -1: a packet is due, or leaves the line. */
static int64_t next_event_ns(const struct direction *direction) {
    const struct entry *flying = ring_flying(&direction->ring), *queued = direction->ring.queued;
    if (flying != NULL)
        return flying->due_ns;
    if (queued != NULL)
        return rate_leaves_ns(&direction->rate, queued->arrived_ns, queued->wire_bytes);
    return -1;
}

/* Until a packet comes, there are orders, or `until_ns` is there. */
static void rest(struct direction *direction, int64_t until_ns) {
    struct pollfd ends[] = {{.fd = direction->from_fd, .events = POLLIN},
                            {.fd = direction->wake_fd, .events = POLLIN}};
    int64_t wait_ns = until_ns - monotonic_ns();
    if (until_ns >= 0 && wait_ns <= 0)
        return;
    if (wait_ns > 2 * EARLY_NS)
        wait_ns -= EARLY_NS;
    const struct timespec wait = {wait_ns / NS_PER_S, wait_ns % NS_PER_S};
    ppoll(ends, 2, until_ns < 0 ? NULL : &wait, NULL);
    eventfd_t ignored;
    if (ends[1].revents)
        eventfd_read(direction->wake_fd, &ignored);
    if (ends[0].revents & POLLERR)
        usleep(10000); /* the device is down */
}

void *direction_run(void *argument) {
    struct direction *direction = argument;
    prctl(PR_SET_TIMERSLACK, 1ul); /* 50 us otherwise */
    setpriority(PRIO_PROCESS, 0, -20); /* a link is not late because its hosts are busy */
    for (;;) {
        const int more = receive(direction);
        const int64_t now_ns = monotonic_ns();
        depart(direction, now_ns);
        deliver(direction, now_ns);
        take_orders(direction);
        if (!more)
            rest(direction, next_event_ns(direction));
    }
    return NULL;
}
