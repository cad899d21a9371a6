/* First in, first out: packets of any size in one stretch of memory.
 *
 * The oldest packets are flying (on their way), the younger ones queued (waiting for the line): one
 * list, in order of arrival, with a mark at the oldest queued one. A packet is never split over the
 * end of the memory, so `limit` may change at any time.
 */
#ifndef RING_H
#define RING_H

#include <stddef.h>
#include <stdint.h>

struct entry {
    struct entry *next;
    int64_t arrived_ns;
    int64_t due_ns; /* when it reaches the other side; known once it flies */
    uint64_t wire_bytes;
    size_t size;
    uint8_t bytes[];
};

struct ring {
    uint8_t *memory;
    size_t reserved; /* address space; only what is used takes memory */
    size_t limit;
    size_t head; /* the next free byte */
    struct entry *oldest, *queued, *newest;
};

/* 0, or -1 with errno. */
int ring_open(struct ring *ring, size_t reserved);

/* Take the memory of the first `size` bytes now, not at first use. Any thread may. */
void ring_touch(const struct ring *ring, size_t size);

/* At most `limit` bytes from now on. */
void ring_set_limit(struct ring *ring, size_t limit);

/* Room for a packet of `size` bytes, or NULL. It may be pushed with a smaller `size`, or not at all. */
struct entry *ring_reserve(struct ring *ring, size_t size);
void ring_push(struct ring *ring, struct entry *entry);

/* The oldest flying packet, or NULL. */
struct entry *ring_flying(const struct ring *ring);
/* The oldest queued packet flies. */
void ring_fly(struct ring *ring);
/* The oldest flying packet leaves. */
void ring_pop(struct ring *ring);

#endif
