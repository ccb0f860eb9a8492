-- A worker hands a claimed run back before anything was emitted, because it lacks the agent or is stopping.
-- keys: run record
-- args: prefix, key, execution id, most hand-backs, length of the log at the claim
-- result: {'released', hand-backs} | {'exhausted', hand-backs} | {'cancel', cause} | {'lost', status} | {'gone'}
local p, key = ARGV[1], ARGV[2]
local r = redis.call('HMGET', KEYS[1], 'status', 'execution', 'cancel_cause', 'handbacks', 'thread_digest', 'answering',
  'attempt', 'lost')
if not r[1] then return {'gone'} end
if r[1] ~= 'running' or r[2] ~= ARGV[3] or redis.call('LLEN', p .. 'log:' .. key) ~= tonumber(ARGV[5]) then
  return {'lost', r[1]}
end
if r[3] then return {'cancel', r[3]} end
local handbacks = tonumber(r[4] or 0) + 1
if handbacks > tonumber(ARGV[4]) then return {'exhausted', handbacks} end
redis.call('HSET', KEYS[1], 'status', 'queued', 'handbacks', handbacks)
redis.call('HDEL', KEYS[1], 'execution', 'worker', 'host', 'pid', 'hints')
if tonumber(r[7]) > 1 then
  redis.call('HINCRBY', KEYS[1], 'attempt', -1)
else
  redis.call('HDEL', KEYS[1], 'started_at', 'deadline_at', 'attempt', 'retries')
end
-- What a lost attempt has seen stays answered.
if not r[8] then give_back(p, r[5], key, r[6], true) end
redis.call('ZREM', p .. 'leases', key)
redis.call('ZADD', p .. 'ready', clock(), key)
return {'released', handbacks}
