#include "impairments.h"

#include <math.h>

/* xorshift64*: quick, and random enough to lose packets by. `state` is not 0. */
static double uniform(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (double)((*state * 2685821657736338717ull) >> 11) * 0x1.0p-53;
}

int64_t rate_leaves_ns(const struct rate *rate, int64_t arrived_ns, uint64_t wire_bytes) {
    if (rate->bits_per_s <= 0)
        return arrived_ns;
    const int64_t starts_ns = rate->free_ns > arrived_ns ? rate->free_ns : arrived_ns;
    return starts_ns + (int64_t)((double)wire_bytes * 8e9 / rate->bits_per_s);
}

uint64_t queue_room(const struct queue *queue) {
    return queue->used_bytes < queue->limit_bytes ? queue->limit_bytes - queue->used_bytes : 0;
}

/* The gap between losses is geometric, so a packet costs a subtraction and a loss a logarithm. */
static uint64_t next_gap(struct loss *loss) {
    if (loss->share <= 0)
        return UINT64_MAX;
    if (loss->share >= 1)
        return 0;
    const double gap = log(1.0 - uniform(&loss->random)) / log(1.0 - loss->share);
    return gap < 1e18 ? (uint64_t)gap : UINT64_MAX;
}

void loss_set(struct loss *loss, double share) {
    loss->share = share;
    loss->num_spared = next_gap(loss);
}

uint32_t loss_spares(struct loss *loss, uint32_t num) {
    if (loss->num_spared >= num) {
        loss->num_spared -= num;
        return num;
    }
    const uint32_t spared = (uint32_t)loss->num_spared;
    loss->num_spared = next_gap(loss);
    return spared;
}

int64_t delay_due_ns(struct delay *delay, int64_t leaves_ns) {
    int64_t due_ns = leaves_ns + delay->delay_ns;
    if (delay->jitter_ns > 0)
        due_ns += (int64_t)(uniform(&delay->random) * (double)delay->jitter_ns);
    if (due_ns < delay->last_due_ns)
        due_ns = delay->last_due_ns;
    delay->last_due_ns = due_ns;
    return due_ns;
}

int cut_at(const struct cut *cut, int64_t now_ns) { return now_ns < cut->until_ns; }
