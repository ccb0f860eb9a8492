-- Reserves the identity, stores the input, appends RUN_STARTED as seq 1, takes or awaits the thread's turn.
-- keys: run record, the broker's queue where that is in this database
-- args: prefix, key, actor, thread id, run id, actor digest, thread digest, agent, input, frame, policy,
--       most waiting, parent run id ('' for none), submission token (its repeated script gets the same answer),
--       traceparent ('' for none), queue message (there is a queue only if there is one),
--       answers: (interrupt id, status, key of the run that asked or '') ...
-- result: {'accepted', 'ready' | 'waiting', now, {keys in front}, {ids of answers to nothing}} | {'known'} | {'expired'}
--         | {'busy', active key} | {'crowded', active key} | {'changed'}: somebody else asks by now
--         | {'taken', key of the run that answers, ids ...} | {'foreclosed' | 'uncovered', key of the run that asked, ids ...}
-- Returns the ids to reserve and those that nobody asked, or the refusal.
local function judge(p, key, thread, now, free)
  local open, mine, nobodys, refused = questions(p .. 'open:' .. thread), {}, {}, {}
  local function refuse(why, who, id)
    refused[why] = refused[why] or {why, who}
    table.insert(refused[why], id)
  end
  for at = 17, #ARGV, 3 do
    local id, resolved = ARGV[at], ARGV[at + 1] == 'resolved'
    local question = open[id]
    if question then
      if question.run ~= ARGV[at + 2] then return nil, nil, {'changed'} end
      if question.by and redis.call('HGET', p .. 'run:' .. question.by, 'status') == 'queued' then
        refuse('taken', question.by, id)
      elseif resolved and foreclosed(question, now) then
        refuse('foreclosed', question.run, id)
      end
      mine[#mine + 1] = id
      question.by = key
    else
      local answered = redis.call('HGET', p .. 'answered:' .. thread, id)
      if answered and resolved then refuse('taken', cjson.decode(answered).by, id) end
      nobodys[#nobodys + 1] = id
    end
  end
  if free then
    for id, question in pairs(open) do
      if question.by ~= key and not foreclosed(question, now) then refuse('uncovered', question.run, id) end
    end
  end
  local refusal = refused.taken or refused.foreclosed or refused.uncovered
  if refusal then return nil, nil, refusal end
  for _, id in ipairs(mine) do redis.call('HSET', p .. 'open:' .. thread, id, cjson.encode(open[id])) end
  return mine, nobodys
end
local p, key, thread = ARGV[1], ARGV[2], ARGV[7]
local known = redis.call('HGET', KEYS[1], 'submission')
if known then
  if known ~= ARGV[14] then return {'known'} end
  local line = redis.call('LRANGE', p .. 'wait:' .. thread, 0, -1)
  local at = redis.call('GET', p .. 'turn:' .. thread)
  if at == key then return {'accepted', 'ready', clock(), {}, {}} end
  local before = {at}
  for _, other in ipairs(line) do
    if other == key then break end
    before[#before + 1] = other
  end
  return {'accepted', 'waiting', clock(), before, {}}
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
local mine, nobodys = {}, {}
if #ARGV > 16 or redis.call('EXISTS', p .. 'open:' .. thread) == 1 then
  local refusal
  mine, nobodys, refusal = judge(p, key, thread, now, not active)
  if refusal then return refusal end
end
redis.call('HSET', KEYS[1], 'actor', ARGV[3], 'thread_id', ARGV[4], 'run_id', ARGV[5], 'actor_digest', ARGV[6],
  'thread_digest', thread, 'agent', ARGV[8], 'status', 'queued', 'created_at', now, 'policy', ARGV[11],
  'submission', ARGV[14],
  'bytes', #ARGV[10])
if ARGV[13] ~= '' then redis.call('HSET', KEYS[1], 'parent_run_id', ARGV[13]) end
if #mine > 0 then redis.call('HSET', KEYS[1], 'answering', cjson.encode(mine)) end
if ARGV[15] ~= '' then redis.call('HSET', KEYS[1], 'traceparent', ARGV[15]) end
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
  return {'accepted', 'waiting', now, front, nobodys}
end
redis.call('SET', turn, key)
redis.call('HSET', KEYS[1], 'ready_at', now)
redis.call('ZADD', p .. 'ready', now, key)
-- A hint: the run is accepted also where the queue cannot be written.
if KEYS[2] then redis.pcall('LPUSH', KEYS[2], ARGV[16]) end
return {'accepted', 'ready', now, front, nobodys}
