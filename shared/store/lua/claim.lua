-- A worker takes a queued run whose turn has come; asking again with the same execution id answers the same.
-- keys: run record
-- args: prefix, key, execution id, allowed statuses, lease ms, deadline ms, worker, host, pid,
--       'again' when this execution says a claim again that a restarted server may have forgotten,
--       ending of a run that leaves a question open, hold ms,
--       how often a lost run of this worker's agents is retried as JSON {agent: times} or ''
-- result: {'claimed', now, deadline at, attempt, agent, actor, thread id, run id, input, log length,
--            traceparent or '', ids of answered interrupts as JSON or '', tool calls that these are about ...}
--         | {'refused', status, 'paused', 'held' or 'uncovered': fenced for its ending} | {'gone'}
-- Redeems what the run answers and closes what nobody can answer any more; false when a question is left.
local function redeem(p, thread, key, now, run_id, again)
  local open = questions(p .. 'open:' .. thread)
  for _, question in pairs(open) do
    if question.by ~= key and not foreclosed(question, now) and not again then return false end
  end
  for id, question in pairs(open) do
    question.by = key
    move(p, thread, 'open', 'answered', id, question)
    local asker = p .. 'run:' .. question.run
    if redis.call('HEXISTS', asker, 'status') == 1 then redis.call('HSET', asker, 'answered_by', run_id) end
  end
  return true
end
local p, key = ARGV[1], ARGV[2]
local status, execution, ending, thread, run_id, lost, agent = unpack(redis.call('HMGET', KEYS[1], 'status', 'execution',
  'ending', 'thread_digest', 'run_id', 'lost', 'agent'))
if not status then return {'gone'} end
local now = tonumber(clock())
local mine = status == 'running' and execution == ARGV[3]
if not mine then
  if ARGV[10] ~= 'again' and redis.call('HEXISTS', p .. 'intake', 'paused') == 1 then return {'refused', 'paused'} end
  if ending or not among(ARGV[4], status) or not redis.call('ZSCORE', p .. 'ready', key)
    or (lost and string.find(lost, '"' .. ARGV[3] .. '"', 1, true)) then
    return {'refused', status}
  end
  local ready_at, seen_at = tonumber(redis.call('HGET', KEYS[1], 'ready_at')), server_seen(p, now)
  if ARGV[10] ~= 'again' and ready_at < seen_at and now < seen_at + ARGV[5] then
    -- Somebody may be executing it whose claim was forgotten; the sweep offers it when that one had its time.
    redis.call('HDEL', KEYS[1], 'hints')
    redis.call('ZADD', p .. 'ready', seen_at + ARGV[5] - 2000, key)
    return {'refused', 'held'}
  end
  if redis.call('EXISTS', p .. 'open:' .. thread) == 1
    and not redeem(p, thread, key, now, run_id, ARGV[10] == 'again') then
    redis.call('HSET', KEYS[1], 'execution', ARGV[3], 'ending', ARGV[11])
    redis.call('ZREM', p .. 'ready', key)
    redis.call('ZADD', p .. 'leases', now + ARGV[12], key)
    return {'refused', 'uncovered'}
  end
  redis.call('HSET', KEYS[1], 'status', 'running', 'execution', ARGV[3], 'worker', ARGV[7], 'host', ARGV[8], 'pid', ARGV[9])
  redis.call('HSETNX', KEYS[1], 'started_at', now)
  redis.call('HSETNX', KEYS[1], 'deadline_at', string.format('%d', now + ARGV[6]))
  redis.call('HINCRBY', KEYS[1], 'attempt', 1)
  local retries = ARGV[13] ~= '' and cjson.decode(ARGV[13])[agent]
  if retries then redis.call('HSETNX', KEYS[1], 'retries', string.format('%d', retries)) end
  redis.call('ZREM', p .. 'ready', key)
  observe(p, now, 'queue_wait', now - ready_at)
end
redis.call('ZADD', p .. 'leases', now + ARGV[5], key)
local r = redis.call('HMGET', KEYS[1], 'deadline_at', 'attempt', 'agent', 'actor', 'thread_id', 'run_id',
  'traceparent', 'answering')
local input = redis.call('GET', p .. 'input:' .. key)
local answer = {'claimed', now, r[1], r[2], r[3], r[4], r[5], r[6], input or '',
  redis.call('LLEN', p .. 'log:' .. key), r[7] or '', r[8] or ''}
for _, id in ipairs(r[8] and cjson.decode(r[8]) or {}) do
  local redeemed = redis.call('HGET', p .. 'answered:' .. thread, id)
  local question = redeemed and cjson.decode(redeemed)
  if question and question.by == key and question.call then answer[#answer + 1] = question.call end
end
return answer
