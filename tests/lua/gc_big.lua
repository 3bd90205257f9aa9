-- SPDX-License-Identifier: Apache-2.0
-- A heap of some 500 MB, most of it one table. It says "ready", waits for a
-- line, lets the collector work through all of it, in steps and in full
-- collections, each timed by the program itself, prints the times in
-- microseconds and waits for another line.
local collectgarbage, write, format = collectgarbage, io.write, string.format
local ffi = require("ffi")
ffi.cdef [[
  typedef struct { long sec, nsec; } lb_gc_ts;
  int lb_gc_clock(int, lb_gc_ts *) __asm__("clock_gettime");
]]
local get, ts = ffi.C.lb_gc_clock, ffi.new("lb_gc_ts")
jit.off()
io.stdout:setvbuf("line")

local function clock(which)
  get(which, ts)
  return tonumber(ts.sec) * 1e6 + tonumber(ts.nsec) / 1e3
end

collectgarbage("stop")
local keep = {}
for i = 1, 6500000 do keep[i] = { i } end
local heap_kb = collectgarbage("count")

local pauses = {}
local function by_hand(what, arg)
  local w0, c0 = clock(1), clock(3)
  local done = collectgarbage(what, arg)
  local c1, w1 = clock(3), clock(1)
  pauses[#pauses + 1] = format("pause %s %.3f %.3f\n", what, w1 - w0, c1 - c0)
  collectgarbage("stop")
  return done
end

write("ready\n")
io.read("*l")
for _ = 1, 2 do by_hand("collect", 0) end
-- The big table changes in each cycle: it is marked again in the atomic phase.
repeat keep[1] = { 1 } until by_hand("step", 50000) == true
write(table.concat(pauses))
write(format("heap_kb %d\n", heap_kb))
write("done\n")
io.read("*l")
