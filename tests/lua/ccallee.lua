-- SPDX-License-Identifier: Apache-2.0
-- Inlined functions that call C from a trace: through the FFI, and what LuaJIT
-- itself calls for math.sin. Nearly all their time is below the C function.
local truth = require("truth")
local ffi = require("ffi")
ffi.cdef "size_t strlen(const char *);"
local strlen, sin = ffi.C.strlen, math.sin
local text = string.rep("x", 20000)

local function through_ffi(n)
  return n + tonumber(strlen(text))
end

local function through_libm(x)
  return sin(x) + sin(x + 1) + sin(x + 2) + sin(x + 3)
end

local function case_ffi(n)
  local sum = 0
  for _ = 1, n do sum = through_ffi(sum) end
  return sum
end

local function case_libm(n)
  local sum = 0
  for i = 1, n do sum = sum + through_libm(i + 0.5) end
  return sum
end

while truth.go() do
  case_ffi(10000)
  case_libm(50000)
end
