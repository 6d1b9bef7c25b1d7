-- One row per block of memory in the recording: when it was allocated and released, what allocated it, and what it was
-- used for, if the times show this.
--
-- empty without: _memory_blocks
-- needs: _memory_blocks, _memory_places, backward_passes, memory, slices, step_marks, optimizer_steps, dataloader
-- column id: BIGINT, identifies the block within the store
-- column rank: INTEGER, distributed rank
-- column device_type: INTEGER, memory.device_type
-- column device: INTEGER, device index, -1 for the CPU
-- column addr: UBIGINT, address
-- column bytes: BIGINT, size of the block
-- column ts: BIGINT, time of the allocation in ns; NULL when it was before the recording
-- column end: BIGINT, time of the release in ns, or of the next allocation at the same address if the release was not recorded; NULL if the recording ends before the release
-- column op: VARCHAR, innermost computing framework op around the allocation, or the outermost op if none computes; NULL when no op is recorded
-- column op_id: BIGINT, slices.id of the op
-- column module: VARCHAR, innermost module around the allocation, if stacks were recorded (with_stack=True)
-- column line: VARCHAR, innermost line of the user's own code around the allocation, if stacks were recorded. If the line of the call is unknown (frames.call_line), it is the first line of the function; a function that was already running when the recording began has no line
-- column step: INTEGER, number of the step of the allocation; NULL outside of steps
-- column kind: VARCHAR, before_recording; parameters (allocated while a module was created or moved, never released); optimizer_state (allocated in an optimizer's step, never released); gradients (allocated in a backward pass and alive after it); activations (allocated before a backward pass and released in it); inputs (allocated while loading data); workspace (released before its op or the optimizer's step returns); temporary (released in its step or backward pass, or allocated outside steps and released); kept (alive after its step, or allocated before or between steps and never released); NULL if the recording ends too early
-- column made: BIGINT, memory.ordinal of the allocation
-- column released: BIGINT, memory.ordinal of the release
WITH placed AS (
    SELECT b.*, o.name AS op, p.op AS op_id, o."end" AS op_end, m.name AS module, p.line,
           CASE WHEN z."end" > b.ts THEN z."end" END AS optimizer_end, coalesce(d."end" > b.ts, false) AS loading, p.setup
    FROM _memory_blocks AS b
    LEFT JOIN _memory_places AS p USING (id)
    LEFT JOIN slices AS o ON o.id = p.op
    LEFT JOIN slices AS m ON m.id = p.module
    -- Annotations may overlap Python functions partially, so they are found by their times.
    ASOF LEFT JOIN optimizer_steps AS z ON z.track = b.track AND b.ts >= z.ts
    ASOF LEFT JOIN dataloader AS d ON d.track = b.track AND b.ts >= d.ts
),
ends AS (SELECT rank, max(ts) AS last_ts FROM memory GROUP BY rank),
stepped AS (SELECT rank, max("end") AS stepped_until FROM step_marks GROUP BY rank),
timed AS (
    SELECT p.*, l.last_ts, u.stepped_until,
           CASE WHEN s."end" > p.ts THEN s.step END AS step, CASE WHEN s."end" > p.ts THEN s."end" END AS step_end,
           CASE WHEN m."end" > p.ts THEN m."end" END AS pass_end,
           coalesce(f."end" > p."end" AND f.ts > p.ts, false) AS in_later_pass
    FROM placed AS p
    JOIN ends AS l USING (rank)
    LEFT JOIN stepped AS u USING (rank)
    ASOF LEFT JOIN step_marks AS s ON s.rank = p.rank AND p.ts >= s.ts
    ASOF LEFT JOIN backward_passes AS m ON m.rank = p.rank AND p.ts >= m.ts
    ASOF LEFT JOIN backward_passes AS f ON f.rank = p.rank AND p."end" >= f.ts
)
SELECT id, rank, device_type, device, addr, bytes, ts, "end", op, op_id, module, line, step,
       CASE WHEN ts IS NULL THEN 'before_recording'
            WHEN setup IS NOT NULL AND "end" IS NULL THEN 'parameters'
            WHEN "end" <= greatest(op_end, optimizer_end) THEN 'workspace'
            WHEN loading THEN 'inputs'
            WHEN optimizer_end IS NOT NULL AND "end" IS NULL THEN 'optimizer_state'
            WHEN pass_end < coalesce("end", last_ts) THEN 'gradients'
            WHEN "end" <= pass_end THEN 'temporary'
            WHEN in_later_pass THEN 'activations'
            WHEN "end" <= step_end THEN 'temporary'
            WHEN step_end < coalesce("end", last_ts) OR step_end IS NULL AND "end" IS NULL AND ts < stepped_until THEN 'kept'
            WHEN "end" IS NOT NULL THEN 'temporary' END AS kind,
       made, released
FROM timed
