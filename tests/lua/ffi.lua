-- SPDX-License-Identifier: Apache-2.0
-- FFI calls into C, and a C function (qsort) that calls back into Lua.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local ffi = require("ffi")
ffi.cdef [[
  int abs(int);
  double cbrt(double);
  size_t strlen(const char *);
  void qsort(void *, size_t, size_t, int (*)(const int *, const int *));
]]
local C = ffi.C
local text = string.rep("x", 4000)

local function call_libc(n) --: call_libc
  local s = 0
  for i = 1, n do s = s + tonumber(C.strlen(text)) + C.abs(-i) end
  return s
end

local function call_libm(n) --: call_libm
  local s = 0
  for i = 1, n do s = s + C.cbrt(i) end
  return s
end

local function weigh(x) --: weigh
  local s = x
  for i = 1, 100 do s = s + i end
  return s
end

local function compare(a, b) --: compare
  local x, y = weigh(a[0]), weigh(b[0])
  return x < y and -1 or (x > y and 1 or 0)
end

-- A callback must not be called from a trace: keep this one interpreted.
local callback = ffi.cast("int (*)(const int *, const int *)", compare)
local array = ffi.new("int[16]")
local function call_back(n) --: call_back
  for i = 1, n do
    for k = 0, 15 do array[k] = (k * 7919) % 31 end
    C.qsort(array, 16, 4, callback)
  end
end
jit.off(call_back)

local scale = jit.status() and 8 or 1
while go() do
  local t0 = clock()
  call_libc(1000 * scale)
  local t1 = clock()
  call_libm(2000 * scale)
  local t2 = clock()
  call_back(4 * scale)
  local t3 = clock()
  add("call_libc", t1 - t0)
  add("call_libm", t2 - t1)
  add("call_back", t3 - t2)
end
