#!lua flags=allow-oom
-- Closing events, terminal event, record, indexes and the thread's next turn in one step; the first finisher wins.
-- keys: run record, log
-- args: prefix, key, execution id, expected first seq, allowed statuses, status, retention ms, bytes of the frames,
--       doorbell limit, channel, number of fields, number of questions, 'unseen' when no agent saw its answers,
--       fields (name, value) ..., questions (interrupt id, expires at or '', tool call id or '') ..., frames ...
-- result: {'finished', last seq, successor key or '', now} | {'repeated', last seq, status} | {'ended', status}
--         | {'gap', log length} | {'lost', status} | {'unclaimed'} | {'gone'}
local p, key = ARGV[1], ARGV[2]
local r = redis.call('HMGET', KEYS[1], 'status', 'execution', 'actor_digest', 'thread_digest', 'finished_at', 'bytes',
  'agent', 'cancel_requested_at', 'created_at', 'started_at', 'ready_at', 'answering', 'lost')
local status = r[1]
if not status then return {'gone'} end
local length = redis.call('LLEN', KEYS[2])
if r[5] then
  if r[2] == ARGV[3] then return {'repeated', length, status} end
  return {'ended', status}
end
if status == 'queued' and not r[2] then return {'unclaimed'} end
if r[2] ~= ARGV[3] or not among(ARGV[5], status) then return {'lost', status} end
if tonumber(ARGV[4]) ~= length + 1 then return {'gap', length} end
local now, first_question = clock(), 14 + ARGV[11] * 2
local first_frame = first_question + ARGV[12] * 3
for from = first_frame, #ARGV, 4000 do
  redis.call('RPUSH', KEYS[2], unpack(ARGV, from, math.min(from + 3999, #ARGV)))
end
local code = ''
for at = 14, first_question - 1, 2 do
  redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
  if ARGV[at] == 'code' then code = ARGV[at + 1] end
end
redis.call('HSET', KEYS[1], 'status', ARGV[6], 'finished_at', now, 'last_event_at', now,
  'bytes', string.format('%d', r[6] + ARGV[8]))
redis.call('HDEL', KEYS[1], 'ending', 'calling')
-- The log held RUN_STARTED only: the agent's first event comes with the ending, if there is one besides it.
if length == 1 and r[10] and #ARGV > first_frame then redis.call('HSETNX', KEYS[1], 'first_event_at', now) end
redis.call('ZREM', p .. 'leases', key)
redis.call('ZREM', p .. 'ready', key)
redis.call('ZADD', p .. 'ended', now, key)
if redis.call('HINCRBY', p .. 'active', r[3], -1) <= 0 then redis.call('HDEL', p .. 'active', r[3]) end
redis.call('ZREM', p .. 'live', key)
redis.call('ZADD', p .. 'status:' .. ARGV[6], r[9], key)
if code ~= '' then redis.call('ZADD', p .. 'code:' .. code, r[9], key) end
tally(p, now, r[7] .. '|' .. ARGV[6] .. '|' .. code, 1)
if r[10] then
  observe(p, now, 'duration', now - r[10])
  if length == 1 and r[11] then observe(p, now, 'first_event', now - r[11]) end
end
if r[8] then observe(p, now, 'cancel_latency', now - r[8]) end
local keep = string.format('%d', ARGV[7] + 86400000)
redis.call('PEXPIRE', KEYS[1], keep)
redis.call('PEXPIRE', KEYS[2], keep)
redis.call('PEXPIRE', p .. 'input:' .. key, keep)
-- A lost attempt has seen the answers.
if (status == 'queued' or ARGV[13] ~= '') and not r[13] then give_back(p, r[4], key, r[12], false) end
local asked, open = {}, p .. 'open:' .. r[4]
for at = first_question, first_frame - 1, 3 do
  asked[#asked + 1] = ARGV[at]
  local question = {run = key}
  if ARGV[at + 1] ~= '' then question.expires_at = ARGV[at + 1] end
  if ARGV[at + 2] ~= '' then question.call = ARGV[at + 2] end
  redis.call('HSET', open, ARGV[at], cjson.encode(question))
end
if #asked > 0 then
  redis.call('PEXPIRE', open, keep)
  redis.call('HSET', KEYS[1], 'asked', cjson.encode(asked))
end
local successor = promote(p, key, r[4], now)
local count = #ARGV - first_frame + 1
local head = ARGV[4] .. ' ' .. count .. '\n'
if tonumber(ARGV[8]) <= tonumber(ARGV[9]) then
  redis.call('PUBLISH', ARGV[10], head .. table.concat(ARGV, '', first_frame))
else
  redis.call('PUBLISH', ARGV[10], head)
end
return {'finished', length + count, successor, now}
