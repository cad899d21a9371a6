/* A packet as a TUN device with IFF_VNET_HDR hands it over: a virtio header, then IPv4.
 *
 * With TSO the kernel gives whole super-packets, up to 64 KiB of TCP payload with one header, which
 * stand for `num_segments` packets of the MTU on a wire. All sizes on the wire count those packets,
 * each with its own header. A super-packet is cut only between segments, and only where some of
 * them are lost; each run of survivors is a packet of the same form, and the kernel still fills in
 * checksums. Only IPv4 is known here: the namespaces have IPv6 turned off.
 */
#ifndef PACKET_H
#define PACKET_H

#include <linux/virtio_net.h>
#include <stddef.h>
#include <stdint.h>

#define PACKET_MAX (sizeof(struct virtio_net_hdr) + 65535)

struct packet {
    const uint8_t *bytes; /* virtio header first */
    size_t size;
    uint32_t header_size;  /* IP and TCP headers, which every segment repeats */
    uint32_t segment_size; /* payload of a full segment; of the only one when there is one */
    uint32_t num_segments;
};

/* Reads what `size` bytes at `bytes` are. They must outlive the packet. */
struct packet packet_parse(const uint8_t *bytes, size_t size);

/* Bytes on the wire of segments [first, first + num). */
uint64_t packet_wire_bytes(const struct packet *packet, uint32_t first, uint32_t num);

/* Writes segments [first, first + num) as a packet of their own; its size. `to` has room for the
 * whole packet, and does not overlap it. */
size_t packet_cut(const struct packet *packet, uint32_t first, uint32_t num, uint8_t *to);

#endif
