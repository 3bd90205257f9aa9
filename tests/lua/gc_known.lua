-- SPDX-License-Identifier: Apache-2.0
-- Collections of which the numbers are known, each timed by the program itself.
-- It says "ready", waits for a line, works, prints what it did and waits for
-- another line. LB_JOFF: without the compiler. LB_PARTS: letters of the parts
-- to run (default all).
--
--   k  999 steps and 23 full collections by hand, timed; 1009 calls of "count"
--   a  automatic steps, of the interpreter or of traces, for 5 cycles
--   t  finalizers that fail, in full collections and in steps
--   n  finalizers that collect garbage themselves
local collectgarbage, newproxy, getmetatable = collectgarbage, newproxy,
  getmetatable
local clock, write, format = os.clock, io.write, string.format
if os.getenv("LB_JOFF") then jit.off() end
io.stdout:setvbuf("line")

-- Wall clock in microseconds; a static program cannot look the function up.
local has_ffi, ffi = pcall(require, "ffi")
local wall
if has_ffi then
  ffi.cdef [[
    typedef struct { long sec, nsec; } lb_gc_ts;
    int lb_gc_clock(int, lb_gc_ts *) __asm__("clock_gettime");
  ]]
  local ok, get = pcall(function() return ffi.C.lb_gc_clock end)
  if ok then
    local ts = ffi.new("lb_gc_ts")
    wall = function()
      get(1, ts)
      return tonumber(ts.sec) * 1e6 + tonumber(ts.nsec) / 1e3
    end
  end
end

collectgarbage("stop")
local keep = {}
for i = 1, 40000 do keep[i] = { i } end
for i = 1, 4000 do keep[-i] = "text " .. i end

-- One finalizer runs in each cycle, and provides for the next one.
local cycles = 0
local function sentinel()
  getmetatable(newproxy(true)).__gc = function()
    cycles = cycles + 1
    sentinel()
  end
end

local function with_finalizer(f)
  getmetatable(newproxy(true)).__gc = f
end

local parts = {}

local function zeros(n)
  local t = {}
  for i = 1, n do t[i] = 0 end
  return t
end

local function by_hand(times, cpu, i, what, arg)
  local w0, c0 = wall and wall() or 0, clock()
  collectgarbage(what, arg)
  local c1, w1 = clock(), wall and wall() or 0
  collectgarbage("stop")
  times[i], cpu[i] = w1 - w0, c1 - c0
end

function parts.k()
  local n_steps, n_full = 999, 23
  local kinds, times, cpu = {}, zeros(n_steps + n_full),
    zeros(n_steps + n_full)
  for i = 1, n_steps + n_full do kinds[i] = "step" end
  for i = 1, n_full do kinds[i * 43] = "full" end
  for i = 1, n_steps + n_full do
    if kinds[i] == "full" then
      by_hand(times, cpu, i, "collect", 0)
    else
      by_hand(times, cpu, i, "step", i % 10 == 0 and 150 or 0)
    end
  end
  for i = 1, 1009 do collectgarbage("count") end
  for i = 1, #times do
    write(format("pause %s %.3f %.3f\n", kinds[i], times[i], cpu[i] * 1e6))
  end
end

local function allocate(n)
  local t = {}
  for i = 1, n do t[i % 50 + 1] = { i } end
  return t
end

-- Short cycles from here on: each has a step for every kilobyte.
local function trim()
  for i = 1501, #keep do keep[i] = nil end
end

function parts.a()
  trim()
  local until_cycle = cycles + 5
  collectgarbage("restart")
  while cycles < until_cycle do allocate(1000) end
  collectgarbage("stop")
end

local function fail() error("from a finalizer", 0) end

-- Never in a trace: an error that leaves a step there makes Debian's LuaJITs
-- crash, with and without anybody who watches.
function parts.t()
  local thrown = 0
  trim()
  jit.off()
  jit.flush()
  for i = 1, 101 do
    with_finalizer(fail)
    if not pcall(collectgarbage, "collect") then thrown = thrown + 1 end
    collectgarbage("stop")
  end
  write(format("thrown_full %d\n", thrown))
  thrown = 0
  for i = 1, 11 do
    local before = cycles
    with_finalizer(fail)
    collectgarbage("restart")
    if not pcall(function()
      while cycles < before + 2 do allocate(1000) end
    end) then thrown = thrown + 1 end
    collectgarbage("stop")
  end
  write(format("thrown_steps %d\n", thrown))
  if not os.getenv("LB_JOFF") then jit.on() end
end

function parts.n()
  local nested = 0
  trim()
  for i = 1, 31 do
    with_finalizer(function()
      nested = nested + 1
      collectgarbage("collect")
      collectgarbage("step", 0)
      allocate(2000)
    end)
    collectgarbage("collect")
    collectgarbage("stop")
  end
  write(format("nested %d\n", nested))
end

sentinel()
write("ready\n")
io.read("*l")
local order = os.getenv("LB_PARTS") or "katn"
for letter in order:gmatch(".") do
  local before = cycles
  parts[letter]()
  write(format("cycles_%s %d\n", letter, cycles - before))
end
write(format("kept %d\n", #keep))
write("done\n")
io.read("*l")
