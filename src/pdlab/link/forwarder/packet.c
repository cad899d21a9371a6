#include "packet.h"

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <string.h>

#define VIRTIO_SIZE sizeof(struct virtio_net_hdr)

struct packet packet_parse(const uint8_t *bytes, size_t size) {
    const uint32_t ip_size = (uint32_t)(size - VIRTIO_SIZE);
    struct packet packet = {bytes, size, 0, ip_size, 1};
    struct virtio_net_hdr virtio;
    memcpy(&virtio, bytes, sizeof virtio);
    if (virtio.gso_type != VIRTIO_NET_HDR_GSO_TCPV4 || virtio.gso_size == 0)
        return packet;
    /* virtio.hdr_len is only a hint; the headers themselves say where the payload starts. */
    const uint8_t *ip = bytes + VIRTIO_SIZE;
    const uint32_t ip_header = (ip[0] & 15u) * 4;
    if (ip_header < sizeof(struct iphdr) || ip_size < ip_header + sizeof(struct tcphdr))
        return packet;
    const uint32_t tcp_header = (ip[ip_header + 12] >> 4) * 4u, header = ip_header + tcp_header;
    if (tcp_header < sizeof(struct tcphdr) || ip_size <= header + virtio.gso_size)
        return packet;
    packet.header_size = header;
    packet.segment_size = virtio.gso_size;
    packet.num_segments = (ip_size - header + virtio.gso_size - 1) / virtio.gso_size;
    return packet;
}

/* Payload bytes of segments [first, first + num); the last segment may be short. */
static uint32_t payload(const struct packet *packet, uint32_t first, uint32_t num) {
    const uint32_t all = (uint32_t)(packet->size - VIRTIO_SIZE) - packet->header_size;
    const uint32_t from = first * packet->segment_size;
    const uint32_t to = (first + num) * packet->segment_size;
    return (to < all ? to : all) - from;
}

uint64_t packet_wire_bytes(const struct packet *packet, uint32_t first, uint32_t num) {
    return num == 0 ? 0 : payload(packet, first, num) + (uint64_t)num * packet->header_size;
}

static uint32_t add_words(uint32_t sum, const void *data, size_t size) {
    uint16_t word;
    for (size_t at = 0; at < size; at += sizeof word) {
        memcpy(&word, (const uint8_t *)data + at, sizeof word);
        sum += word;
    }
    return sum;
}

static uint16_t fold(uint32_t sum) {
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* The checksum field of TCP before the kernel completes it: the sum of the pseudo-header alone. */
static uint16_t pseudo_header_sum(const struct iphdr *ip, uint32_t tcp_size) {
    const uint16_t tail[2] = {htons(IPPROTO_TCP), htons((uint16_t)tcp_size)};
    return fold(add_words(add_words(0, &ip->saddr, 8), tail, sizeof tail));
}

/* `options` are what follows `ip` up to the TCP header. */
static void patch_ip(struct iphdr *ip, const uint8_t *options, uint32_t first, uint32_t size) {
    ip->tot_len = htons((uint16_t)size);
    ip->id = htons((uint16_t)(ntohs(ip->id) + first));
    ip->check = 0;
    const uint32_t sum = add_words(0, ip, sizeof *ip);
    ip->check = (uint16_t)~fold(add_words(sum, options, ip->ihl * 4u - sizeof *ip));
}

static void patch_tcp(struct tcphdr *tcp, uint32_t skipped_bytes, int is_first, int is_last) {
    tcp->seq = htonl(ntohl(tcp->seq) + skipped_bytes);
    if (!is_last)
        tcp->fin = tcp->psh = 0;
    if (!is_first)
        tcp->res2 &= 1; /* CWR, the upper of the two bits, is said once */
}

size_t packet_cut(const struct packet *packet, uint32_t first, uint32_t num, uint8_t *to) {
    if (num == packet->num_segments) {
        memcpy(to, packet->bytes, packet->size);
        return packet->size;
    }
    const uint32_t header = packet->header_size, skipped = first * packet->segment_size;
    const uint32_t kept = payload(packet, first, num);
    uint8_t *ip_bytes = to + VIRTIO_SIZE;
    memcpy(to, packet->bytes, VIRTIO_SIZE + header);
    memcpy(ip_bytes + header, packet->bytes + VIRTIO_SIZE + header + skipped, kept);

    struct iphdr ip;
    struct tcphdr tcp;
    memcpy(&ip, ip_bytes, sizeof ip);
    const uint32_t ip_header = ip.ihl * 4u;
    memcpy(&tcp, ip_bytes + ip_header, sizeof tcp);
    patch_tcp(&tcp, skipped, first == 0, first + num == packet->num_segments);
    tcp.check = pseudo_header_sum(&ip, header - ip_header + kept);
    memcpy(ip_bytes + ip_header, &tcp, sizeof tcp);
    patch_ip(&ip, ip_bytes + sizeof ip, first, header + kept);
    memcpy(ip_bytes, &ip, sizeof ip);

    struct virtio_net_hdr *virtio = (struct virtio_net_hdr *)to;
    if (num == 1) {
        virtio->gso_type = VIRTIO_NET_HDR_GSO_NONE;
        virtio->gso_size = 0;
    }
    return VIRTIO_SIZE + header + kept;
}
