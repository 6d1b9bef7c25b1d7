-- One row per transfer of the user's data. Internal transfers of a runtime or a profiler do not count.
--
-- needs: device_ops, _device_work, _name_roles, launches, syncs, _synapse_copies, slices
-- empty without: device_ops.kind=memcpy
-- column id: BIGINT, slices.id of the device event
-- column rank: INTEGER, distributed rank
-- column direction: VARCHAR, host_to_device, device_to_host, device_to_device, peer, or NULL if not recorded
-- column bytes: BIGINT, bytes moved, NULL if not recorded
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column end: BIGINT, end in ns
-- column bandwidth: DOUBLE, bytes per second
-- column pinned: BOOLEAN, whether the host memory is pinned, NULL if not recorded
-- column blocking: BOOLEAN, whether the call that submitted the transfer waited for it to end
-- column op_name: VARCHAR, framework op that requested the transfer
-- column call: BIGINT, host call that submitted the transfer (slices.id)
-- column host_dur: BIGINT, duration on the host of the op that requested the transfer, or of the call if there is no op, in ns
WITH waited AS (
    SELECT DISTINCT p.parent AS op FROM syncs AS y JOIN slices AS p ON p.id = y.id
    WHERE y.kind = 'copy' AND p.parent IS NOT NULL
)
SELECT d.id, d.rank,
       coalesce(c.direction, k.direction) AS direction,
       coalesce(c.bytes, d.bytes) AS bytes, d.ts, d.dur, d."end",
       coalesce(c.bytes, d.bytes) / nullif(d.dur, 0) * 1e9 AS bandwidth,
       CASE WHEN list_contains(n.roles, 'pageable') THEN false WHEN list_contains(n.roles, 'pinned') THEN true END AS pinned,
       -- On Gaudi, a copy is blocking if the op that requested it returns after the transfer.
       coalesce(list_contains(h.roles, 'blocking_copy') OR w.op IS NOT NULL
                OR d."end" <= c.op_end, false) AS blocking,
       -- The cast keeps the ENUM type of names.
       coalesce(c.op_name::event_name, d.op_name) AS op_name,
       coalesce(c.call, d.launch) AS call,
       coalesce(c.op_end - c.op_ts, o.dur, l.dur) AS host_dur
FROM device_ops AS d
JOIN _device_work AS k ON k.id = d.id
LEFT JOIN _name_roles AS n ON n.name = d.name AND n.cat = 'memcpy'
LEFT JOIN launches AS l ON l.id = d.launch
LEFT JOIN _name_roles AS h ON h.name = l.name AND h.cat = 'runtime'
LEFT JOIN _synapse_copies AS c ON c.work = d.id
-- Only ops request copies; annotations do not.
LEFT JOIN slices AS o ON o.id = d.op AND o.cat = 'cpu_op'
LEFT JOIN waited AS w ON w.op = o.id
WHERE d.kind = 'memcpy' AND d.valid AND NOT k.internal
