"""Checks a Perfetto trace of `uio-trace report --perfetto` against the schema that Perfetto publishes.

    check.py MODULES TRACE REPORT             says what is wrong with the trace, exit code 1 if anything is
    check.py MODULES TRACE REPORT --mutations  damages the trace in many ways, each of which must be found

MODULES is the folder with the Python packages `perfetto` and `protobuf`, REPORT what `report --json` says of the same
recording. A complaint begins with the name of what trace_processor would count it as in its table of `stats`
(src/trace_processor/storage/stats.h of Perfetto), or with a name of this file's own: `schema` (a trace_processor would
pass over it), `unended_slice`, `out_of_order`, `not_checked` (a field that is allowed, but that nothing here looks at:
who begins to write it extends this file), `report` (the trace and the report do not say the same).
"""

import json
import math
import os
import sys
from collections import Counter
from datetime import datetime, timezone

if len(sys.argv) not in (4, 5):
    sys.exit(__doc__)
sys.dont_write_bytecode = True
sys.path[:0] = [sys.argv[1], os.path.dirname(os.path.abspath(__file__))]

from google.protobuf.message import DecodeError  # noqa: E402
from google.protobuf.unknown_fields import UnknownFieldSet  # noqa: E402
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb  # noqa: E402

I64_MAX = 2**63 - 1
# Of trace_processor: TrackEventTracker::IsTrackHierarchyValid, SliceTracker.
MAX_ANCESTORS = 100
MAX_DEPTH = 512
# Clocks of one sequence of packets; TracePacket.timestamp_clock_id.
SEQUENCE_CLOCKS = range(64, 128)

# Fields that are checked. Others may be right, but nobody here would notice if they were not.
CHECKED = {
    "TracePacket": {
        "clock_snapshot", "timestamp", "trusted_packet_sequence_id", "track_event", "sequence_flags",
        "timestamp_clock_id", "track_descriptor", "interned_data", "trace_packet_defaults",
    },
    "ClockSnapshot": {"clocks", "primary_trace_clock"},
    "ClockSnapshot.Clock": {"clock_id", "timestamp", "is_incremental", "unit_multiplier_ns"},
    "TracePacketDefaults": {"timestamp_clock_id", "track_event_defaults"},
    "TrackEventDefaults": {"track_uuid"},
    "TrackDescriptor": {"uuid", "name", "parent_uuid", "process", "thread", "counter"},
    "ProcessDescriptor": {"pid", "process_name"},
    "ThreadDescriptor": {"pid", "tid", "thread_name"},
    "CounterDescriptor": {"unit_name"},
    "TrackEvent": {
        "type", "track_uuid", "categories", "category_iids", "name", "name_iid", "debug_annotations",
        "counter_value", "double_counter_value",
    },
    "DebugAnnotation": {"name", "name_iid", "uint_value", "int_value", "bool_value", "double_value", "string_value"},
    "InternedData": {"event_categories", "event_names", "debug_annotation_names"},
    "EventCategory": {"iid", "name"},
    "EventName": {"iid", "name"},
    "DebugAnnotationName": {"iid", "name"},
    "Trace": {"packet"},
}


def walk(message, path, complaints):
    """Fields that the schema does not have, and those that are not checked, at any depth."""
    for field in UnknownFieldSet(message):
        complaints.append(f"schema: {path}: field {field.field_number} is not known, or its value is none of its enum's")
    kind = message.DESCRIPTOR.full_name.removeprefix("perfetto.protos.")
    checked = CHECKED.get(kind, set())
    for field, value in message.ListFields():
        if field.name not in checked:
            complaints.append(f"not_checked: {path}: {kind}.{field.name}")
        if field.type != field.TYPE_MESSAGE:
            continue
        for i, part in enumerate(value if field.is_repeated else [value]):
            walk(part, f"{path}.{field.name}[{i}]" if field.is_repeated else f"{path}.{field.name}", complaints)


class Sequence:
    """What is known of a sequence of packets: TracePacket.trusted_packet_sequence_id."""

    def __init__(self):
        self.valid = False
        self.interned = {}
        self.defaults = pb.TracePacketDefaults()

    def clear(self):
        self.__init__()
        self.valid = True


class Track:
    def __init__(self, descriptor):
        self.uuid = descriptor.uuid
        self.parent = descriptor.parent_uuid
        self.name = descriptor.name
        self.pid = descriptor.process.pid if descriptor.HasField("process") else None
        self.is_counter = descriptor.HasField("counter")
        self.unit = descriptor.counter.unit_name
        self.open = []
        self.slices = []
        self.values = []
        self.last_ns = 0


class Slice:
    def __init__(self, from_ns, name, category, depth, notes):
        self.from_ns, self.to_ns = from_ns, None
        self.name, self.category, self.depth, self.notes = name, category, depth, notes
        self.within = []

    @property
    def length_ns(self):
        return self.to_ns - self.from_ns


class Trace:
    """A trace, read as trace_processor's importers of protos do: proto_trace_reader, track_event_{tokenizer,tracker}."""

    def __init__(self, data):
        self.complaints = []
        self.sequences = {}
        self.tracks = {}
        self.events = []
        self.primary_clock = None
        self.clocks = {}
        self.clock_sets = []
        self.snapshot = {}
        try:
            self.pb = pb.Trace.FromString(data)
        except DecodeError as error:
            self.complain("schema", f"not a Trace: {error}")
            self.pb = pb.Trace()
            return
        walk(self.pb, "trace", self.complaints)
        # A singular field that comes twice is read over: then less is written than was read.
        if self.pb.ByteSize() != len(data):
            self.complain("schema", f"{len(data)} bytes, but as the schema writes it {self.pb.ByteSize()}: a field twice")
        for i, packet in enumerate(self.pb.packet):
            self.packet(i, packet)
        for track in self.tracks.values():
            self.hierarchy(track)
        # trace_processor sorts by time and keeps the order of what is at the same time; an event is held against tracks
        # and clocks that may come behind it, which is an error here.
        for track in self.tracks.values():
            for slice in track.open:
                self.complain("unended_slice", f"{self.path(track)}: {slice.name!r} of {slice.from_ns}")

    def complain(self, stat, text):
        self.complaints.append(f"{stat}: {text}")

    def path(self, track):
        names, seen = [], set()
        while track and track.uuid not in seen:
            seen.add(track.uuid)
            names.insert(0, track.name)
            track = self.tracks.get(track.parent)
        return "/".join(names)

    def packet(self, i, packet):
        where = f"packet {i}"
        if not packet.trusted_packet_sequence_id:
            stat = {
                "track_event": "track_event_missing_sequence_id",
                "interned_data": "interned_data_missing_sequence_id",
                "trace_packet_defaults": "trace_packet_defaults_missing_sequence_id",
            }
            for field, name in stat.items():
                if packet.HasField(field):
                    self.complain(name, where)
            if packet.sequence_flags & pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
                self.complain("incremental_state_cleared_missing_sequence_id", where)
            if not any(packet.HasField(field) for field in stat):
                self.complain("schema", f"{where}: no trusted_packet_sequence_id")
        sequence = self.sequences.setdefault(packet.trusted_packet_sequence_id, Sequence())
        if packet.sequence_flags & pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            sequence.clear()
        if packet.sequence_flags & ~3:
            self.complain("schema", f"{where}: sequence_flags {packet.sequence_flags:#x}")
        if packet.HasField("trace_packet_defaults"):
            sequence.defaults = packet.trace_packet_defaults
        if packet.HasField("interned_data"):
            if not sequence.valid:
                self.complain("interned_data_skipped_incremental_state_invalid", where)
            for field, entries in packet.interned_data.ListFields():
                for entry in entries:
                    sequence.interned.setdefault(field.name, {})[entry.iid] = entry.name
        if packet.sequence_flags & pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE and not sequence.valid:
            self.complain("packet_skipped_seq_needs_incremental_state_invalid", where)
        if packet.HasField("clock_snapshot"):
            self.clock_snapshot(where, packet)
            return
        at_ns = self.time(where, packet, sequence) if packet.HasField("timestamp") else None
        if packet.HasField("track_descriptor"):
            self.descriptor(where, packet.track_descriptor)
        elif packet.HasField("track_event"):
            self.event(where, packet.track_event, sequence, at_ns)
        elif not (packet.HasField("interned_data") or packet.HasField("trace_packet_defaults")):
            self.complain("schema", f"{where}: nothing in it")

    def clock_snapshot(self, where, packet):
        snapshot = packet.clock_snapshot
        if self.primary_clock not in (None, snapshot.primary_trace_clock):
            self.complain("invalid_clock_snapshots", f"{where}: another primary_trace_clock")
        if not snapshot.primary_trace_clock:
            self.complain("clock_sync_failure_unknown_target_clock", f"{where}: no primary_trace_clock")
        self.primary_clock = snapshot.primary_trace_clock
        ids = []
        for clock in snapshot.clocks:
            if not (clock.HasField("clock_id") and clock.HasField("timestamp")):
                self.complain("invalid_clock_snapshots", f"{where}: a clock without id or time")
            if clock.clock_id in SEQUENCE_CLOCKS:
                name = (packet.trusted_packet_sequence_id, clock.clock_id)
            else:
                name = clock.clock_id
                if clock.clock_id < 64 and clock.clock_id not in pb.BuiltinClock.values():
                    self.complain("invalid_clock_snapshots", f"{where}: there is no clock {clock.clock_id}")
            if name in ids:
                self.complain("invalid_clock_snapshots", f"{where}: clock {name} twice")
            ids.append(name)
            way = (clock.unit_multiplier_ns or 1, clock.is_incremental)
            known, last = self.clocks.get(name, (way, 0))
            if known != way or (name == self.primary_clock and (way[0] != 1 or clock.timestamp < last)):
                self.complain("invalid_clock_snapshots", f"{where}: clock {name}")
            if clock.timestamp > I64_MAX:
                self.complain("invalid_clock_snapshots", f"{where}: clock {name} beyond 2^63")
            self.clocks[name] = (way, clock.timestamp)
            self.snapshot[name] = clock.timestamp
        self.clock_sets.append(set(ids))

    def time(self, where, packet, sequence):
        clock = packet.timestamp_clock_id or sequence.defaults.timestamp_clock_id or self.primary_clock
        if clock in SEQUENCE_CLOCKS:
            clock = (packet.trusted_packet_sequence_id, clock)
        if clock not in self.clocks:
            self.complain("clock_sync_failure_unknown_source_clock", f"{where}: clock {clock}")
        elif clock != self.primary_clock:
            reached, before = {clock}, set()
            while reached != before:
                before = set(reached)
                reached.update(*(ids for ids in self.clock_sets if ids & before))
            if self.primary_clock not in reached:
                self.complain("clock_sync_failure_no_path", f"{where}: clock {clock}")
            # Right or wrong: what follows compares with times of the report.
            self.complain("not_checked", f"{where}: a time of clock {clock}")
        if packet.timestamp > I64_MAX:
            self.complain("track_event_invalid_timestamp", f"{where}: {packet.timestamp} is negative")
        return packet.timestamp

    def descriptor(self, where, descriptor):
        if not descriptor.HasField("uuid"):
            return self.complain("track_descriptor_missing_uuid", where)
        if descriptor.uuid == 0 and descriptor.parent_uuid:
            self.complain("track_descriptor_default_track_with_parent", where)
        if descriptor.HasField("process") and not descriptor.process.HasField("pid"):
            self.complain("track_descriptor_process_missing_pid", where)
        if descriptor.HasField("thread") and not (
            descriptor.thread.HasField("pid") and descriptor.thread.HasField("tid")
        ):
            self.complain("track_descriptor_thread_missing_pid_tid", where)
        if descriptor.uuid in self.tracks:
            return self.complain("track_descriptor_conflicting_reservation", f"{where}: track {descriptor.uuid}")
        if descriptor.HasField("parent_uuid") and descriptor.parent_uuid not in self.tracks:
            self.complain("track_hierarchy_missing_uuid", f"{where}: no parent {descriptor.parent_uuid} before it")
        if not descriptor.name:
            self.complain("schema", f"{where}: a track without a name")
        self.tracks[descriptor.uuid] = Track(descriptor)

    def hierarchy(self, track):
        seen, at = [], track
        while at:
            if at.uuid in seen:
                return self.complain("track_event_track_hierarchy_loop", f"track {track.uuid}")
            seen.append(at.uuid)
            at = self.tracks.get(at.parent)
        if len(seen) >= MAX_ANCESTORS:
            self.complain("track_event_track_hierarchy_too_deep", f"track {track.uuid}")

    def interned(self, where, sequence, kind, iid):
        if iid not in sequence.interned.get(kind, {}):
            self.complain("interned_data_tokenizer_errors", f"{where}: no {kind} {iid} before it")
        return sequence.interned.get(kind, {}).get(iid, "")

    def event(self, where, event, sequence, at_ns):
        if at_ns is None:
            return self.complain("track_event_missing_timestamp", where)
        if not event.HasField("type") or event.type == pb.TrackEvent.TYPE_UNSPECIFIED:
            return self.complain("track_event_parser_errors", f"{where}: no type")
        uuid = event.track_uuid if event.HasField("track_uuid") else sequence.defaults.track_event_defaults.track_uuid
        counts = event.type == pb.TrackEvent.TYPE_COUNTER
        if not uuid:
            stat = "track_event_counter_missing_track_uuid" if counts else "schema"
            return self.complain(stat, f"{where}: no track_uuid")
        track = self.tracks.get(uuid)
        if track is None:
            stat = "track_event_counter_invalid_track_uuid" if counts else "track_hierarchy_missing_uuid"
            return self.complain(stat, f"{where}: no track {uuid} before it")
        if at_ns < track.last_ns:
            self.complain("out_of_order", f"{where}: {at_ns} after {track.last_ns} on {self.path(track)}")
        track.last_ns = at_ns
        name = self.interned(where, sequence, "event_names", event.name_iid) if event.name_iid else event.name
        categories = list(event.categories)
        categories += [self.interned(where, sequence, "event_categories", iid) for iid in event.category_iids]
        notes = {}
        for note in event.debug_annotations:
            key = note.name
            if note.HasField("name_iid"):
                key = self.interned(where, sequence, "debug_annotation_names", note.name_iid)
            value = note.WhichOneof("value")
            if not key or not value or key in notes:
                self.complain("track_event_parser_errors", f"{where}: annotation {key!r} without name or value, or twice")
                continue
            notes[key] = getattr(note, value)
        if counts:
            self.value(where, event, track, at_ns)
        elif track.is_counter:
            self.complain("track_event_parser_errors", f"{where}: no value, but {self.path(track)} is a counter")
        elif event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
            if not name or len(categories) != 1:
                self.complain("schema", f"{where}: a slice needs a name and one category")
            slice = Slice(at_ns, name, ",".join(categories), len(track.open), notes)
            if len(track.open) >= MAX_DEPTH:
                self.complain("slice_max_depth_exceeded", f"{where}: {self.path(track)}")
            if track.open:
                track.open[-1].within.append(slice)
            track.open.append(slice)
            track.slices.append(slice)
        elif event.type == pb.TrackEvent.TYPE_SLICE_END:
            # An end may say whose it is; of another one than the innermost it cuts off what is within.
            if not track.open or (name and name != track.open[-1].name):
                return self.complain("misplaced_end_event", f"{where}: {self.path(track)} at {at_ns}")
            slice = track.open.pop()
            slice.to_ns = at_ns
            if slice.length_ns < 0:
                self.complain("slice_negative_duration", f"{where}: {self.path(track)}: {slice.name!r}")
        else:
            self.complain("not_checked", f"{where}: type {event.type}")

    def value(self, where, event, track, at_ns):
        value = event.WhichOneof("counter_value_field")
        if value is None:
            return self.complain("track_event_counter_missing_value", where)
        if not track.is_counter:
            return self.complain("track_event_counter_invalid_track_uuid", f"{where}: {self.path(track)} is no counter")
        if not math.isfinite(getattr(event, value)):
            return self.complain("schema", f"{where}: {self.path(track)} is {getattr(event, value)}")
        track.values.append((at_ns, getattr(event, value)))

    # What the trace says, for the comparison.

    def slices_of(self, path, depth=0):
        return [s for t in self.tracks.values() if self.path(t) == path for s in t.slices if s.depth == depth]

    def counter(self, path):
        """Length, sum over time (each value lasts to the next) and maximum of a counter; None: there is none."""
        tracks = [t for t in self.tracks.values() if self.path(t) == path and t.is_counter]
        if len(tracks) != 1:
            return None
        values = tracks[0].values
        total = sum(value * (after[0] - at) for (at, value), after in zip(values, values[1:]))
        return values[-1][0] - values[0][0] if values else 0, total, max((v for _, v in values), default=0)


def unix_ns(text):
    """RFC 3339 to ns since 1970; None: it is none."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // (moment.resolution) * 1000


class Comparison:
    """The trace against the report: its own complaints only."""

    def __init__(self, trace, records):
        self.trace = trace
        self.complaints = []
        self.compared = Counter()
        of = lambda kind: [r for r in records if r["type"] == kind]  # noqa: E731
        self.meta, self.interval, self.loss = of("meta")[0], of("interval")[0], of("loss")[0]
        self.clock()
        self.drains(of("aio_drain"))
        self.devices(of("uio_device"), of("slow_op"))
        self.owners(of("ref_owner"))
        self.losses()

    def same(self, what, trace, report):
        self.compared[what.split(":")[0]] += 1
        if trace != report:
            self.complaints.append(f"report: {what}: the trace says {trace}, the report {report}")

    def near(self, what, trace, report):
        self.compared[what.split(":")[0]] += 1
        if trace is None or not math.isclose(trace, report, rel_tol=1e-6, abs_tol=1e-6):
            self.complaints.append(f"report: {what}: the trace says {trace}, the report {report}")

    def clock(self):
        names = pb.BuiltinClock.Name
        clocks = {names(id): ns for id, ns in self.trace.snapshot.items() if isinstance(id, int)}
        wanted = {"BUILTIN_CLOCK_MONOTONIC": self.meta["started_ns"]}
        if (real := unix_ns(self.meta["started"])) is not None:
            wanted["BUILTIN_CLOCK_REALTIME"] = real
        self.same("clocks", clocks, wanted)

    def drains(self, drains):
        mine, theirs = Counter(), Counter()
        contexts, wanted_contexts = Counter(), Counter()
        phases, wanted_phases = Counter(), Counter()
        processes = {t.uuid: t for t in self.trace.tracks.values() if t.pid is not None}
        for track in self.trace.tracks.values():
            process = processes.get(track.parent)
            if process is None:
                continue
            key = (process.pid, process.name)
            for s in track.slices:
                if track.name == "AIO drains":
                    mine[(*key, s.notes["thread"], s.from_ns, s.length_ns, s.notes["contexts"], s.name,
                          s.notes["projected_parallel_ns"], s.notes["sum_ns"], s.notes["uncertain"])] += 1
                elif s.depth == 0:
                    contexts[(*key, s.name, s.notes["drain"], s.from_ns, s.length_ns)] += 1
                else:
                    phases[(*key, s.name)] += s.length_ns
        for d in drains:
            key = (d["tgid"], d["comm"])
            name = f"{d['cause']}: {d['contexts']} contexts, {d['verdict']}"
            theirs[(*key, d["tid"], d["start_ns"], d["wall_ns"], d["contexts"], name,
                    d["projected_parallel_ns"], d["sum_ns"], str(d["uncertain"]).lower())] += 1
            for c in d["detail"]:
                wanted_contexts[(*key, f"context {c['ctx']}", d["id"], d["start_ns"] + c["start_offset_ns"],
                                 c["total_ns"])] += 1
                for names, whole, total in (
                    ((("users: grace period", "users_gp_ns"), ("users: references", "users_refs_ns")), "users", "users_ns"),
                    ((("requests: grace period", "reqs_gp_ns"), ("requests: in flight", "reqs_io_ns")), "requests", "reqs_ns"),
                ):
                    if all(c[field] is not None for _, field in names):
                        for name, field in names:
                            wanted_phases[(*key, name)] += c[field]
                    elif c[total] is not None:
                        wanted_phases[(*key, whole)] += c[total]
                    else:
                        # Without the first half the begin of the second is not known.
                        break
        self.same("drains", sorted(mine.items()), sorted(theirs.items()))
        self.same("contexts", sorted(contexts.items()), sorted(wanted_contexts.items()))
        self.same("phases", sorted(phases.items()), sorted(wanted_phases.items()))

    def devices(self, devices, slow_ops):
        group = [t.uuid for t in self.trace.tracks.values() if t.name == "UIO" and not t.parent]
        tracks = {t.name for t in self.trace.tracks.values() if t.parent in group}
        names = {}
        for d in devices:
            name = d["sysfs_name"]
            if d["generation"]:
                name += f", registered again {d['generation']} times"
            names[name + (f" ({d['name']})" if d["name"] is not None else "")] = d
        self.same("devices", sorted(tracks), sorted(names))
        for title, device in names.items():
            path = f"UIO/{title}"
            for counter, field, scale in (("info_lock held", "utilization", 100), ("threads waiting", "mean_waiters", 1)):
                seen = self.trace.counter(f"{path}/{counter}")
                if not device["ops"] or device[field] is None or seen is None or not seen[0]:
                    continue
                self.same(f"length of {counter}", seen[0], self.interval["duration_ns"])
                value = seen[1] / seen[0] / scale
                if scale == 100 and seen[2] == 100:
                    # Of made-up readings a stretch may hold the lock for longer than it lasts, and is cut to 100 %.
                    self.same(f"{counter}: {title}", value <= device[field], True)
                else:
                    self.near(f"{counter}: {title}", value, device[field])
            if device["ops"] and self.interval["duration_ns"]:
                self.same(f"counters of {title}", self.trace.counter(f"{path}/threads waiting") is not None, True)
        # Of the report these are the longest 64.
        mine = Counter()
        for title in tracks:
            device = title.split(" ")[0].split(",")[0]
            for s in self.trace.slices_of(f"UIO/{title}/slow operations"):
                part = {w.name: w.length_ns for w in s.within}
                wait, hold = part.pop("wait for info_lock", 0), part.pop("hold info_lock", 0)
                if part:
                    self.complaints.append(f"report: slow operations: parts {sorted(part)}")
                op, comm = s.name.split(": ", 1)
                mine[(device, op, comm, s.notes["process"], s.notes["thread"], s.length_ns, wait, hold,
                      s.notes["driver_wait_ns"], s.notes.get("lock_held_by"))] += 1
        theirs = Counter(
            (s["sysfs_name"], s["op"], s["comm"], s["tgid"], s["tid"], s["latency_ns"], s["wait_ns"], s["hold_ns"],
             s["driver_wait_ns"], s["holder"])
            for s in slow_ops
        )
        self.same("slow operations", sorted(map(str, (theirs - mine).elements())), [])
        if len(slow_ops) < 64:
            self.same("number of slow operations", mine.total(), len(slow_ops))

    def owners(self, owners):
        group = [t.uuid for t in self.trace.tracks.values() if t.name == "percpu_ref" and not t.parent]
        tracks = {t.name for t in self.trace.tracks.values() if t.parent in group}
        # Two release functions may have the same words.
        names = {}
        for o in owners:
            names.setdefault(o["owner"], []).append(o)
        killed = {name for name, rows in names.items() if any(o["kills"] > o["kills_already_dead"] for o in rows)}
        self.same("owners", sorted(tracks), sorted(killed))
        for name in tracks & killed:
            rows = names[name]
            slices = self.trace.slices_of(f"percpu_ref/{name}")
            total = lambda field: sum(o[field] for o in rows)  # noqa: E731
            self.same(f"kills: {name}", len(slices), total("kills") - total("kills_already_dead"))
            periods = [w.length_ns for s in slices for w in s.within if w.name == "grace period"]
            switched = [o["grace_period_ns"] for o in rows]
            self.same(f"grace periods: {name}", (len(periods), sum(periods)),
                      (sum(h["count"] for h in switched), sum(h["sum"] for h in switched)))
            ended = [s.length_ns for s in slices if not s.name.endswith(", end not seen")]
            unended = len(slices) - len(ended)
            self.same(f"ends not seen: {name}", unended, total("dying") + total("ends_unseen"))
            if all(o["released"] is not None for o in rows):
                drained = [o["drain_ns"] for o in rows]
                self.same(f"kill to end: {name}", (len(ended), sum(ended)),
                          (sum(h["count"] for h in drained), sum(h["sum"] for h in drained)))

    def losses(self):
        lost = self.loss["seen"], sum(self.loss["dropped"].values())
        for name, wanted in zip(("operations and events per second", "lost events per second"), lost):
            seen = self.trace.counter(f"Trace/{name}")
            if seen is None:
                self.complaints.append(f"report: there is no counter {name}")
            else:
                self.same(f"length of {name}", seen[0], self.interval["duration_ns"])
                self.near(name, seen[1] / 1e9, wanted)


def check(data, records):
    trace = Trace(data)
    complaints = list(trace.complaints)
    compared = Counter()
    # Of a trace that is not right the figures are not asked for.
    if not complaints:
        comparison = Comparison(trace, records)
        complaints, compared = comparison.complaints, comparison.compared
    return trace, complaints, compared


def main():
    with open(sys.argv[2], "rb") as file:
        data = file.read()
    with open(sys.argv[3], encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    trace, complaints, compared = check(data, records)
    if sys.argv[4:] == ["--mutations"] and not complaints:
        import mutations

        complaints = mutations.run(pb, data, lambda mutated: check(mutated, records)[1])
    for complaint in complaints[:20]:
        print(complaint)
    slices = sum(len(track.slices) for track in trace.tracks.values())
    values = sum(len(track.values) for track in trace.tracks.values())
    print(f"{len(trace.pb.packet)} packets, {len(trace.tracks)} tracks, {slices} slices, {values} values of counters, "
          f"{compared.total()} figures compared, {len(complaints)} complaints")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
