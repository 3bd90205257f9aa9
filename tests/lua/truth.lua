-- SPDX-License-Identifier: Apache-2.0
-- What every known-answer program does beside its work: say "ready", measure
-- its own shares, and end after two minutes even if nobody ends it.
--
--   while go() do
--     local t = clock(); work(); add("work", clock() - t)
--   end
--
-- Each line `truth cpu=S label=S ...` holds sums of CPU seconds since the
-- start; the reader takes the difference of two lines around its samples.
-- The clock is os.clock(), CPU time of the process in microseconds; hosts with
-- threads bring c_clock(), CPU time of the thread. What is timed should last
-- half a millisecond or more.
--
-- No FFI here: its metamethods would add frames to every graph. The mark
-- `--: name` tells the checker in which line a function begins.
local clock, time = c_clock or os.clock, os.time
local prefix = THREAD and ("t" .. THREAD .. ".") or ""
local write, format = io.write, string.format
local sums, order = {}, {}
local start_time, next_report = time(), 0
local seed, jitter = 1, jit.status() and 400000 or 100000

io.stdout:setvbuf("line")

local function report(now) --: report
  if next_report == 0 then write("ready\n") end
  next_report = now + 0.02
  local line = format("truth %scpu=%.6f", prefix, now)
  for i = 1, #order do
    line = format("%s %s%s=%.6f", line, prefix, order[i], sums[order[i]])
  end
  write(line, "\n")
end

-- Once an iteration of the main loop: an iteration takes a millisecond or so.
-- It wastes up to half a millisecond, another time each: without it the loop
-- and the sampler fell into step (84 % sampled where 66 % was true, since a
-- sample of a deep stack delays the program more than one of a flat stack).
local function go() --: go=truth.go
  seed = seed * 16807 % 2147483647
  for i = 1, seed % jitter do end
  local now = clock()
  if now < next_report then return true end
  report(now)
  return time() - start_time < 120
end

local function add(label, seconds) --: add=truth.add
  local sum = sums[label]
  if not sum then
    order[#order + 1] = label
    sum = 0
  end
  sums[label] = sum + seconds
end

return { go = go, add = add, clock = clock }
