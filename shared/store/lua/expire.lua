#!lua flags=allow-oom
-- Deletes an ended run past its retention and leaves a tombstone on its identity.
-- keys: run record
-- args: prefix, key, retention ms, tombstone ms
-- result: 1 when something was deleted, else 0
local p, key = ARGV[1], ARGV[2]
local r = redis.call('HMGET', KEYS[1], 'finished_at', 'actor_digest', 'thread_digest', 'agent', 'status', 'code', 'asked')
if r[1] and tonumber(r[1]) > clock() - ARGV[3] then return 0 end
redis.call('ZREM', p .. 'ended', key)
redis.call('ZREM', p .. 'runs', key)
redis.call('ZREM', p .. 'live', key)
if r[2] then
  redis.call('ZREM', p .. 'actor:' .. r[2], key)
  redis.call('ZREM', p .. 'thread:' .. r[3], key)
  redis.call('ZREM', p .. 'agent:' .. r[4], key)
  redis.call('ZREM', p .. 'status:' .. r[5], key)
  if r[6] then redis.call('ZREM', p .. 'code:' .. r[6], key) end
  for _, id in ipairs(r[7] and cjson.decode(r[7]) or {}) do
    for _, kind in ipairs({'open:', 'answered:'}) do
      local question = redis.call('HGET', p .. kind .. r[3], id)
      if question and cjson.decode(question).run == key then redis.call('HDEL', p .. kind .. r[3], id) end
    end
  end
  redis.call('SET', p .. 'tomb:' .. key, '1', 'PX', ARGV[4])
end
redis.call('DEL', KEYS[1], p .. 'log:' .. key, p .. 'input:' .. key)
return 1
