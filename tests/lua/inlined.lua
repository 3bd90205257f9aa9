-- SPDX-License-Identifier: Apache-2.0
-- Calls that a trace inlines, with a split of CPU time that is known by
-- construction: each function makes a number of units, and a unit needs the
-- result of the one before it, so that the processor cannot work on two at
-- once. `units` counts how many each function has made.
--
-- With the argument "oracle" each case runs once, and what the compiler says
-- of its traces is printed for tests/unit/test_traces_live.c.
local truth = arg and arg[1] == "oracle" and { clock = os.clock } or
  require("truth")
local clock = truth.clock
local ffi = require("ffi")
local M = {}

-- A unit: x = x * 16807 % 2147483647

local function three_h(x) --: three_h
  x = x * 16807 % 2147483647
  x = x * 16807 % 2147483647
  x = x * 16807 % 2147483647
  return x
end

local function three_g(x) --: three_g
  x = x * 16807 % 2147483647
  x = three_h(x)
  x = x * 16807 % 2147483647
  return x
end

local function three_f(x) --: three_f
  x = three_g(x)
  x = x * 16807 % 2147483647
  return x
end

local function case_three(n, x) --: case_three
  for i = 1, n do x = three_f(x) end
  return x
end

-- Side traces: the low bit is as good as random.
local n_odd, n_even = 0, 0

local function odd(x) --: odd
  n_odd = n_odd + 1
  x = x * 16807 % 2147483647
  x = x * 16807 % 2147483647
  x = x * 16807 % 2147483647
  return x
end

local function even(x) --: even
  n_even = n_even + 1
  x = x * 16807 % 2147483647
  return x
end

local function choose(x) --: choose
  if x % 2 == 1 then x = odd(x) else x = even(x) end
  x = x * 16807 % 2147483647
  return x
end

local function case_branch(n, x) --: case_branch
  for i = 1, n do x = choose(x) end
  return x
end

-- A tail call takes its caller's frame.
local function tail_end(x) --: tail_end
  x = x * 16807 % 2147483647
  x = x * 16807 % 2147483647
  return x
end

local function tail_begin(x) --: tail_begin
  x = x * 16807 % 2147483647
  return tail_end(x)
end

local function case_tail(n, x) --: case_tail
  for i = 1, n do x = tail_begin(x) end
  return x
end

-- Methods, found through a metatable.
local Class = {}
Class.__index = Class

function Class:one(x) --: method_one=Class:one
  self.calls = self.calls + 1
  return x * 16807 % 2147483647
end

function Class:three(x) --: method_three=Class:three
  x = x * 16807 % 2147483647
  x = x * 16807 % 2147483647
  self.calls = self.calls + 1
  return x * 16807 % 2147483647
end

local function case_method(n, x) --: case_method
  local object = setmetatable({ calls = 0 }, Class)
  for i = 1, n do x = object:three(object:one(x)) end
  return x
end

-- Closures with state of their own, many of one prototype.
local function make_counter(k) --: make_counter
  local count = 0
  return function(x) --: counter
    count = count + k
    x = x * 16807 % 2147483647
    x = x * 16807 % 2147483647
    return x
  end
end

local counters = {}
for i = 1, 8 do counters[i] = make_counter(i) end

local function case_closure(n, x) --: case_closure
  local counter = counters[7]
  for i = 1, n do
    x = counter(x)
    x = x * 16807 % 2147483647
  end
  return x
end

-- Iterators: pairs, ipairs, next, and one of our own.
local list, map = {}, {}
for i = 1, 50 do
  list[i] = i
  map["k" .. i] = i
end

local function visit(x, v) --: visit
  x = (x + v) * 16807 % 2147483647
  x = x * 16807 % 2147483647
  return x
end

local function case_ipairs(n, x) --: case_ipairs
  for i = 1, n do
    for _, v in ipairs(list) do x = visit(x, v) end
  end
  return x
end

local function case_pairs(n, x) --: case_pairs
  for i = 1, n do
    for _, v in pairs(map) do x = visit(x, v) end
    local k, v = next(map)
    while k do
      x = visit(x, v)
      k, v = next(map, k)
    end
  end
  return x
end

local function iterate(last, i) --: iterate
  if i < last then return i + 1 end
end

local function case_iterator(n, x) --: case_iterator
  for i = 1, n do
    for v in iterate, 50, 0 do x = visit(x, v) end
  end
  return x
end

-- Strings: each is made by C code that the trace calls.
local function letter(x) --: letter
  return string.char(97 + x % 26)
end

local function word(x) --: word
  local s = letter(x) .. letter(x + 1) .. letter(x + 2)
  return #s + string.byte(s, 2)
end

local function case_string(n, x) --: case_string
  for i = 1, n do x = (x + word(x)) * 16807 % 2147483647 end
  return x
end

-- Fields of a C struct.
local point = ffi.new("struct { double x, y; int n; }")

local function move(p) --: move
  p.x = p.x * 16807 % 2147483647
  p.n = p.n + 1
end

local function turn(p) --: turn
  p.y = p.x * 16807 % 2147483647
  p.x = p.y * 16807 % 2147483647
end

local function case_struct(n, x) --: case_struct
  point.x = x
  for i = 1, n do
    move(point)
    turn(point)
  end
  return point.x
end

-- Recursion, unrolled by the compiler; not a tail call.
local function recurse(x, depth) --: recurse
  x = x * 16807 % 2147483647
  if depth > 0 then x = recurse(x, depth - 1) + 1 end
  return x
end

local function case_recursion(n, x) --: case_recursion
  for i = 1, n do x = recurse(x, 9) end
  return x
end

-- Metamethods.
local Number = {}
Number.__index = function(t, k) --: mm_index=Number.__index
  local x = rawget(t, 1) * 16807 % 2147483647
  return x * 16807 % 2147483647
end
Number.__add = function(a, b) --: mm_add=Number.__add
  a[1] = b * 16807 % 2147483647
  return a
end

local function case_meta(n, x) --: case_meta
  local number = setmetatable({ x }, Number)
  for i = 1, n do number = number + number.next end
  return number[1]
end

-- Functions of a module, called by its table, one with variable arguments.
function M.inner(x) --: module_inner=M.inner
  x = x * 16807 % 2147483647
  return x * 16807 % 2147483647
end

function M.outer(x, ...) --: module_outer=M.outer
  x = M.inner(x) + select("#", ...)
  return x * 16807 % 2147483647
end

local function case_module(n, x) --: case_module
  for i = 1, n do x = M.outer(x, i, 3) end
  return x
end

local cases = {
  { "three", case_three, 300 }, { "branch", case_branch, 500 },
  { "tail", case_tail, 600 }, { "method", case_method, 500 },
  { "closure", case_closure, 600 }, { "ipairs", case_ipairs, 20 },
  { "pairs", case_pairs, 10 }, { "iterator", case_iterator, 20 },
  { "string", case_string, 500 }, { "struct", case_struct, 600 },
  { "recursion", case_recursion, 100 }, { "meta", case_meta, 600 },
  { "module", case_module, 600 },
}

local function measure() --: measure
  local scale = jit.status() and 60 or 4
  while truth.go() do
    for i = 1, #cases do
      local case = cases[i]
      local t = clock()
      case[2](case[3] * scale, 4711)
      truth.add(case[1], clock() - t)
    end
    truth.add("odd", n_odd)
    truth.add("even", n_even)
    n_odd, n_even = 0, 0
  end
end

-- ---- what the compiler says ----

local function oracle()
  local util, band, shr = require("jit.util"), bit.band, bit.rshift
  local traceinfo, funcinfo = util.traceinfo, util.funcinfo
  local out = assert(io.open(arg[2], "w"))
  local events, stopped = {}, {}

  local function on_record(tr, func, pc)
    local at = events[tr]
    local info = funcinfo(func, pc)
    if not at then return end
    at[#at + 1] = { traceinfo(tr).nins, info.linedefined or -1,
                    info.currentline or -1 }
  end
  local function on_trace(what, tr)
    if what == "start" then
      events[tr] = {}
    elseif what == "stop" then
      stopped[#stopped + 1] = tr
    elseif what == "abort" or what == "flush" then
      if tr then events[tr] = nil end
    end
  end

  for _, case in ipairs(cases) do
    for i = 1, 5 do -- side traces take some rounds
      jit.attach(on_trace, "trace")
      jit.attach(on_record, "record")
      case[2](case[3] * 20, 4711)
      jit.attach(on_trace)
      jit.attach(on_record)
    end
  end
  jit.off()

  -- frames of a snapshot above the lowest: first lines, innermost last
  local function frames(tr, snap)
    local lines, below = {}, nil
    for i = 2, #snap - 1 do
      local entry = snap[i]
      local slot, ref = shr(entry, 24), band(entry, 0xffff) - 0x8000
      if band(entry, 0x10000) ~= 0 and slot > 1 then
        local func = ref < 0 and util.tracek(tr, ref)
        if type(func) ~= "function" then -- two slots: it is the one below
          func = below
        end
        local info = type(func) == "function" and funcinfo(func)
        lines[#lines + 1] = info and (info.linedefined or "C") or "?"
      end
      below = ref < 0 and util.tracek(tr, ref) or nil
    end
    return table.concat(lines, ",")
  end

  out:write("thread ", tostring(coroutine.create(print)):sub(9), "\n")
  for tr, at in pairs(events) do
    if traceinfo(tr) then
      out:write("trace ", tr, "\n")
      for i = 0, traceinfo(tr).nexit - 1 do
        local snap = util.tracesnap(tr, i)
        if snap then
          out:write("snap ", tr, " ", i, " ", snap[0], " ",
                    frames(tr, snap), "\n")
        end
      end
      for i = 1, #at do
        out:write("event ", tr, " ", table.concat(at[i], " "), "\n")
      end
    end
  end
  out:close()
  print("ready")
  io.stdout:flush()
  io.read()
end

if arg and arg[1] == "oracle" then oracle() else measure() end
