"""Ways to damage a trace; each says with what complaint check.py must refuse it."""

# A varint of field 9999, which no message of the schema has.
UNKNOWN = b"\xf8\xf0\x04\x01"


def run(pb, data, complaints_of):
    """What was not found."""
    event = pb.TrackEvent
    missed, tried = [], 0

    def events(trace, kind):
        return [p for p in trace.packet if p.HasField("track_event") and p.track_event.type == kind]

    def begins(trace):
        return events(trace, event.TYPE_SLICE_BEGIN)

    def ends(trace):
        return events(trace, event.TYPE_SLICE_END)

    def values(trace):
        return events(trace, event.TYPE_COUNTER)

    def tracks(trace, **having):
        field = next(iter(having))
        return [p for p in trace.packet if p.track_descriptor.HasField(field)]

    def annotated(trace):
        return next(p for p in begins(trace) if p.track_event.debug_annotations)

    def without(trace, packet):
        index = next(i for i, p in enumerate(trace.packet) if p is packet or p == packet)
        del trace.packet[index]

    def slice_named(trace, name):
        """Begin and end of a slice that has nothing within."""
        for i, packet in enumerate(trace.packet):
            if packet.track_event.name.startswith(name) and trace.packet[i + 1].track_event.type == event.TYPE_SLICE_END:
                return i, i + 1
        raise LookupError(name)

    def drop_slice(name):
        def damage(trace):
            begin, end = slice_named(trace, name)
            del trace.packet[begin : end + 1]

        return damage

    def drop_slice_and_what_is_within(trace, name):
        first = next(i for i, p in enumerate(trace.packet) if p.track_event.name.startswith(name))
        depth = 0
        for last in range(first, len(trace.packet)):
            depth += {event.TYPE_SLICE_BEGIN: 1, event.TYPE_SLICE_END: -1}[trace.packet[last].track_event.type]
            if depth == 0:
                break
        del trace.packet[first : last + 1]

    def shorten(name):
        def damage(trace):
            trace.packet[slice_named(trace, name)[1]].timestamp -= 1

        return damage

    def renumber(trace, before, after):
        for p in trace.packet:
            if p.track_event.track_uuid == before:
                p.track_event.track_uuid = after

    def of_packet(pick, change):
        return lambda trace: change(pick(trace))

    def extra(**fields):
        return lambda trace: trace.packet.add(trusted_packet_sequence_id=1, **fields)

    def annotation_twice(packet):
        packet.track_event.debug_annotations.add().CopyFrom(packet.track_event.debug_annotations[0])

    def by_iid(packet):
        packet.track_event.ClearField("name")
        packet.track_event.name_iid = 7

    def not_cleared(trace):
        trace.packet[0].ClearField("sequence_flags")
        annotated(trace).sequence_flags = pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE

    def into_a_loop(trace):
        first, second = tracks(trace, uuid=True)[:2]
        first.track_descriptor.parent_uuid = second.track_descriptor.uuid
        second.track_descriptor.parent_uuid = first.track_descriptor.uuid

    def clock_twice(trace):
        clocks = trace.packet[0].clock_snapshot.clocks
        clocks.add().CopyFrom(clocks[0])

    def field(message, name, value):
        setattr(message, name, value)

    mutations = [
        # The schema.
        ("unknown field of a packet", "schema", lambda t: t.packet[5].MergeFromString(UNKNOWN)),
        ("unknown field of a trace", "schema", lambda t: t.MergeFromString(UNKNOWN)),
        ("unknown field of a descriptor", "schema",
         lambda t: tracks(t, counter=True)[0].track_descriptor.counter.MergeFromString(UNKNOWN)),
        ("unknown field of an annotation", "schema",
         lambda t: annotated(t).track_event.debug_annotations[0].MergeFromString(UNKNOWN)),
        ("unknown type of event", "schema", lambda t: begins(t)[0].track_event.MergeFromString(b"\x48\x63")),
        ("a field that nothing checks", "not_checked", lambda t: begins(t)[0].track_event.flow_ids.append(1)),
        ("an instant event", "not_checked", extra(
            timestamp=2**62, timestamp_clock_id=3, track_event=event(type=event.TYPE_INSTANT, track_uuid=1, name="a"))),
        ("a packet with nothing in it", "schema", extra()),
        # Sequences.
        ("no sequence", "track_event_missing_sequence_id",
         lambda t: begins(t)[0].ClearField("trusted_packet_sequence_id")),
        ("no sequence where it begins", "incremental_state_cleared_missing_sequence_id",
         lambda t: t.packet[0].ClearField("trusted_packet_sequence_id")),
        ("needs a state that there is not", "packet_skipped_seq_needs_incremental_state_invalid", not_cleared),
        ("a name that was not interned", "interned_data_tokenizer_errors", of_packet(annotated, by_iid)),
        # Clocks.
        ("no clocks", "clock_sync_failure_unknown_source_clock", lambda t: without(t, t.packet[0])),
        ("no primary clock", "clock_sync_failure_unknown_target_clock",
         lambda t: t.packet[0].clock_snapshot.ClearField("primary_trace_clock")),
        ("a clock of no snapshot", "clock_sync_failure_unknown_source_clock",
         lambda t: field(begins(t)[0], "timestamp_clock_id", 5)),
        ("a clock twice", "invalid_clock_snapshots", clock_twice),
        ("a clock that goes back", "invalid_clock_snapshots", lambda t: (
            field(t.packet[0].clock_snapshot.clocks[0], "timestamp", 5),
            t.packet.add(trusted_packet_sequence_id=1, clock_snapshot=pb.ClockSnapshot(
                primary_trace_clock=3, clocks=[pb.ClockSnapshot.Clock(clock_id=3, timestamp=4)])))),
        ("a clock of no builtin", "invalid_clock_snapshots",
         lambda t: t.packet[0].clock_snapshot.clocks.add(clock_id=60, timestamp=1)),
        # Tracks.
        ("a track without uuid", "track_descriptor_missing_uuid",
         lambda t: tracks(t, uuid=True)[-1].track_descriptor.ClearField("uuid")),
        ("a track twice", "track_descriptor_conflicting_reservation",
         lambda t: t.packet.add().CopyFrom(tracks(t, counter=True)[0])),
        ("a parent that is not there", "track_hierarchy_missing_uuid",
         lambda t: field(tracks(t, parent_uuid=True)[0].track_descriptor, "parent_uuid", 2**40)),
        ("a track below itself", "track_event_track_hierarchy_loop", into_a_loop),
        ("a process without pid", "track_descriptor_process_missing_pid",
         lambda t: tracks(t, process=True)[0].track_descriptor.process.ClearField("pid")),
        ("slices of no track", "track_hierarchy_missing_uuid",
         lambda t: renumber(t, begins(t)[0].track_event.track_uuid, 2**40)),
        ("values of no track", "track_event_counter_invalid_track_uuid",
         lambda t: renumber(t, values(t)[0].track_event.track_uuid, 2**40)),
        ("values of a track of slices", "track_event_counter_invalid_track_uuid",
         lambda t: renumber(t, values(t)[0].track_event.track_uuid, tracks(t, uuid=True)[0].track_descriptor.uuid)),
        ("slices on a counter", "track_event_parser_errors", lambda t: renumber(
            t, begins(t)[-1].track_event.track_uuid, tracks(t, counter=True)[0].track_descriptor.uuid)),
        # Events.
        ("no time", "track_event_missing_timestamp", lambda t: begins(t)[0].ClearField("timestamp")),
        ("a time beyond 2^63", "track_event_invalid_timestamp", lambda t: field(ends(t)[-1], "timestamp", 2**63 + 5)),
        ("no type", "track_event_parser_errors", lambda t: begins(t)[0].track_event.ClearField("type")),
        ("no track", "schema", lambda t: begins(t)[0].track_event.ClearField("track_uuid")),
        ("no name", "schema", lambda t: begins(t)[0].track_event.ClearField("name")),
        ("an annotation twice", "track_event_parser_errors", of_packet(annotated, annotation_twice)),
        ("no value", "track_event_counter_missing_value",
         lambda t: values(t)[0].track_event.ClearField("double_counter_value")),
        ("a value that is no number", "schema",
         lambda t: field(values(t)[0].track_event, "double_counter_value", float("nan"))),
        # Slices.
        ("an end too few", "unended_slice", lambda t: without(t, ends(t)[-1])),
        ("an end too many", "misplaced_end_event", lambda t: t.packet.add().CopyFrom(ends(t)[-1])),
        ("an end of another slice", "misplaced_end_event", lambda t: field(ends(t)[0].track_event, "name", "other")),
        ("an end before its begin", "slice_negative_duration",
         lambda t: field(t.packet[slice_named(t, "grace period")[1]], "timestamp", 1)),
        ("what is within ends behind it", "out_of_order", lambda t: field(
            t.packet[slice_named(t, "grace period")[1]], "timestamp", 2**62)),
        ("a value from before", "out_of_order", lambda t: field(values(t)[6], "timestamp", 0)),
        # The report.
        ("a drain less", "report", drop_slice("io_destroy")),
        ("a context less", "report", lambda t: drop_slice_and_what_is_within(t, "context ")),
        ("a drain is shorter", "report", shorten("exit_aio")),
        ("a phase is shorter", "report", shorten("requests: in flight")),
        ("a grace period is shorter", "report", shorten("grace period")),
        ("a kill less", "report", lambda t: drop_slice_and_what_is_within(t, "killed by")),
        ("a wait is shorter", "report", shorten("wait for info_lock")),
        ("another number of contexts", "report", lambda t: field(
            next(a for p in begins(t) for a in p.track_event.debug_annotations if a.name == "contexts"), "uint_value", 5)),
        ("other values", "report", lambda t: field(
            max((p.track_event for p in values(t)), key=lambda e: e.double_counter_value),
            "double_counter_value", 1e-3)),
        ("another begin of the trace", "report",
         lambda t: field(t.packet[0].clock_snapshot.clocks[0], "timestamp", 17)),
        ("another process", "report", lambda t: field(tracks(t, process=True)[0].track_descriptor.process, "pid", 77)),
        ("another device", "report", lambda t: field(
            next(p.track_descriptor for p in t.packet if p.track_descriptor.name.startswith("uio")), "name", "uio9")),
    ]

    for name, complaint, damage in mutations:
        trace = pb.Trace.FromString(data)
        damage(trace)
        expect(name, complaint, complaints_of(trace.SerializeToString()), missed)
        tried += 1

    # Of bytes: what no message can be made into.
    packet = pb.Trace(packet=[pb.TracePacket(trusted_packet_sequence_id=1, timestamp=1)]).SerializeToString()
    twice = packet[:1] + bytes([packet[1] + 2]) + packet[2:] + b"\x40\x02"
    for name, bytes_ in (
        ("cut off", data[:-3]),
        ("a length beyond the end", data + b"\x0a\x7f"),
        ("a group without end", data + b"\x0b"),
        ("a field twice", data + twice),
        ("something behind it", data + b"\0"),
    ):
        expect(name, "schema", complaints_of(bytes_), missed)
        tried += 1
    print(f"{tried} mutations, {tried - len(missed)} refused for what they are")
    return missed


def expect(name, complaint, found, missed):
    if not any(text.startswith(f"{complaint}:") for text in found):
        missed.append(f"mutation: {name}: {complaint} was expected, found was {found[:3]}")
