#define _GNU_SOURCE
#include "ring.h"

#include <sys/mman.h>

#define ALIGNMENT 64

static size_t space(size_t size) {
    return (sizeof(struct entry) + size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int ring_open(struct ring *ring, size_t reserved) {
    void *memory = mmap(NULL, reserved, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -1;
    *ring = (struct ring){.memory = memory, .reserved = reserved};
    return 0;
}

static size_t within(const struct ring *ring, size_t size) {
    return size < ring->reserved ? size : ring->reserved;
}

void ring_touch(const struct ring *ring, size_t size) {
    /* A kernel that does not know this faults the pages in later. */
    madvise(ring->memory, within(ring, size), MADV_POPULATE_WRITE);
}

void ring_set_limit(struct ring *ring, size_t limit) { ring->limit = within(ring, limit); }

struct entry *ring_reserve(struct ring *ring, size_t size) {
    const size_t needed = space(size);
    size_t end = ring->limit;
    if (ring->oldest == NULL) {
        ring->head = 0;
    } else {
        const size_t oldest = (size_t)((uint8_t *)ring->oldest - ring->memory);
        if (ring->head > oldest && ring->head + needed > end)
            ring->head = 0;
        if (ring->head <= oldest)
            end = oldest;
    }
    if (ring->head + needed > end)
        return NULL;
    return (struct entry *)(ring->memory + ring->head);
}

void ring_push(struct ring *ring, struct entry *entry) {
    entry->next = NULL;
    if (ring->oldest == NULL)
        ring->oldest = entry;
    else
        ring->newest->next = entry;
    ring->newest = entry;
    if (ring->queued == NULL)
        ring->queued = entry;
    ring->head += space(entry->size);
}

struct entry *ring_flying(const struct ring *ring) {
    return ring->oldest == ring->queued ? NULL : ring->oldest;
}

void ring_fly(struct ring *ring) { ring->queued = ring->queued->next; }

void ring_pop(struct ring *ring) { ring->oldest = ring->oldest->next; }
