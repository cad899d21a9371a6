"""Message values to and from protobuf, both ways side by side so that neither forgets a field.

Checks nothing but what protobuf cannot say: that a ``PushHeader`` has a body.
"""

from kvtransfer.messages import (
    AttachRequest,
    Body,
    Extent,
    Frame,
    Handoff,
    Identity,
    Opening,
    PageRun,
    Push,
    Reply,
    Standing,
)
from pdcore.cluster import Epoch, NodeName
from pdcore.errors import ProtocolViolation
from pdcore.generation import TransferId
from pdcore.wire import layout_from_proto, layout_to_proto
from pdwire.v1 import kv_transfer_pb2 as pb


def header_to_proto(transfer_id: TransferId, attempt: int, body: Body) -> pb.PushHeader:
    match body:
        case Opening():
            return pb.PushHeader(
                transfer_id=transfer_id, attempt=attempt, open=_opening_to_proto(body)
            )
        case Frame():
            return pb.PushHeader(
                transfer_id=transfer_id, attempt=attempt, frame=_frame_to_proto(body)
            )
        case Handoff():
            return pb.PushHeader(
                transfer_id=transfer_id, attempt=attempt, handoff=_handoff_to_proto(body)
            )


def push_from_proto(header: pb.PushHeader, payload: memoryview) -> Push:
    return Push(TransferId(header.transfer_id), header.attempt, _body_from_proto(header), payload)


def reply_to_proto(reply: Reply) -> pb.PushReply:
    return pb.PushReply(
        attempt=reply.attempt,
        acked_frames=reply.acked_frames,
        acked_bytes=reply.acked_bytes,
        credit_bytes=reply.credit_bytes,
        committed=reply.committed,
        busy_s=reply.busy_s,
    )


def reply_from_proto(message: pb.PushReply) -> Reply:
    return Reply(
        attempt=message.attempt,
        acked_frames=message.acked_frames,
        acked_bytes=message.acked_bytes,
        credit_bytes=message.credit_bytes,
        committed=message.committed,
        busy_s=message.busy_s,
    )


def attach_to_proto(request: AttachRequest) -> pb.AttachRequest:
    return pb.AttachRequest(
        node=request.sender.node,
        epoch=request.sender.epoch,
        layout=layout_to_proto(request.layout),
        protocol=request.protocol,
    )


def attach_from_proto(message: pb.AttachRequest) -> AttachRequest:
    return AttachRequest(
        sender=Identity(NodeName(message.node), Epoch(message.epoch)),
        layout=layout_from_proto(message.layout),
        protocol=message.protocol,
    )


def standing_to_proto(standing: Standing) -> pb.Standing:
    return pb.Standing(
        node=standing.receiver.node,
        epoch=standing.receiver.epoch,
        layout=layout_to_proto(standing.layout),
        protocol=standing.protocol,
        credit_bytes=standing.credit_bytes,
    )


def standing_from_proto(message: pb.Standing) -> Standing:
    return Standing(
        receiver=Identity(NodeName(message.node), Epoch(message.epoch)),
        layout=layout_from_proto(message.layout),
        protocol=message.protocol,
        credit_bytes=message.credit_bytes,
    )


def _body_from_proto(header: pb.PushHeader) -> Body:
    match header.WhichOneof("body"):
        case "open":
            return _opening_from_proto(header.open)
        case "frame":
            return _frame_from_proto(header.frame)
        case "handoff":
            return _handoff_from_proto(header.handoff)
        case _:
            raise ProtocolViolation(
                "a PushMessage holds none of open, frame and handoff: another protocol version?"
            )


def _opening_to_proto(opening: Opening) -> pb.PushHeader.Open:
    return pb.PushHeader.Open(
        sender_node=opening.sender.node,
        sender_epoch=opening.sender.epoch,
        receiver_epoch=opening.receiver_epoch,
        protocol=opening.protocol,
        layout=layout_to_proto(opening.layout),
        codec=opening.codec,
        num_tokens=opening.extent.num_tokens,
        num_pages=opening.extent.num_pages,
        num_stripes=opening.extent.num_stripes,
        stripe=opening.stripe,
    )


def _opening_from_proto(message: pb.PushHeader.Open) -> Opening:
    return Opening(
        sender=Identity(NodeName(message.sender_node), Epoch(message.sender_epoch)),
        receiver_epoch=Epoch(message.receiver_epoch),
        protocol=message.protocol,
        layout=layout_from_proto(message.layout),
        codec=message.codec,
        extent=Extent(message.num_tokens, message.num_pages, message.num_stripes),
        stripe=message.stripe,
    )


def _frame_to_proto(frame: Frame) -> pb.PushHeader.Frame:
    runs = [
        pb.PageRun(
            first_page=run.first_page,
            num_pages=run.num_pages,
            first_layer=run.first_layer,
            num_layers=run.num_layers,
        )
        for run in frame.runs
    ]
    return pb.PushHeader.Frame(sequence=frame.sequence, runs=runs, checksum=frame.checksum)


def _frame_from_proto(message: pb.PushHeader.Frame) -> Frame:
    runs = tuple(
        PageRun(run.first_page, run.num_pages, run.first_layer, run.num_layers)
        for run in message.runs
    )
    return Frame(message.sequence, runs, message.checksum)


def _handoff_to_proto(handoff: Handoff) -> pb.PushHeader.Handoff:
    return pb.PushHeader.Handoff(
        first_token_ids=handoff.first_token_ids,
        cached_tokens=handoff.cached_tokens,
        page_bytes=handoff.page_bytes,
    )


def _handoff_from_proto(message: pb.PushHeader.Handoff) -> Handoff:
    return Handoff(tuple(message.first_token_ids), message.cached_tokens, message.page_bytes)
