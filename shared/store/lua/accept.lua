-- Reserves the identity, stores the input, appends RUN_STARTED as seq 1, takes or awaits the thread's turn.
-- keys: run record
-- args: prefix, key, actor, thread id, run id, actor digest, thread digest, agent, input, frame, policy,
--       most waiting, parent run id ('' for none), submission token (its repeated script gets the same answer)
-- result: {'accepted', 'ready' | 'waiting', now, {keys in front}} | {'known'} | {'expired'}
--         | {'busy', active key} | {'crowded', active key}
local p, key, thread = ARGV[1], ARGV[2], ARGV[7]
local known = redis.call('HGET', KEYS[1], 'submission')
if known then
  if known ~= ARGV[14] then return {'known'} end
  local line = redis.call('LRANGE', p .. 'wait:' .. thread, 0, -1)
  local at = redis.call('GET', p .. 'turn:' .. thread)
  if at == key then return {'accepted', 'ready', clock(), {}} end
  local before = {at}
  for _, other in ipairs(line) do
    if other == key then break end
    before[#before + 1] = other
  end
  return {'accepted', 'waiting', clock(), before}
end
if redis.call('EXISTS', p .. 'tomb:' .. key) == 1 then return {'expired'} end
local now = clock()
server_seen(p, now)
local turn, wait = p .. 'turn:' .. thread, p .. 'wait:' .. thread
local active = redis.call('GET', turn)
local front = {}
if active then
  if ARGV[11] == 'reject' then return {'busy', active} end
  front = redis.call('LRANGE', wait, 0, -1)
  if ARGV[11] == 'enqueue' and #front >= tonumber(ARGV[12]) then return {'crowded', active} end
  table.insert(front, 1, active)
end
redis.call('HSET', KEYS[1], 'actor', ARGV[3], 'thread_id', ARGV[4], 'run_id', ARGV[5], 'actor_digest', ARGV[6],
  'thread_digest', thread, 'agent', ARGV[8], 'status', 'queued', 'created_at', now, 'policy', ARGV[11],
  'submission', ARGV[14],
  'bytes', #ARGV[10])
if ARGV[13] ~= '' then redis.call('HSET', KEYS[1], 'parent_run_id', ARGV[13]) end
redis.call('SET', p .. 'input:' .. key, ARGV[9])
redis.call('RPUSH', p .. 'log:' .. key, ARGV[10])
redis.call('ZADD', p .. 'runs', now, key)
redis.call('ZADD', p .. 'actor:' .. ARGV[6], now, key)
redis.call('ZADD', p .. 'thread:' .. thread, now, key)
redis.call('ZADD', p .. 'agent:' .. ARGV[8], now, key)
redis.call('ZADD', p .. 'live', now, key)
redis.call('HINCRBY', p .. 'active', ARGV[6], 1)
tally(p, now, 'accepted', 1)
if active then
  redis.call('RPUSH', wait, key)
  return {'accepted', 'waiting', now, front}
end
redis.call('SET', turn, key)
redis.call('HSET', KEYS[1], 'ready_at', now)
redis.call('ZADD', p .. 'ready', now, key)
return {'accepted', 'ready', now, front}
