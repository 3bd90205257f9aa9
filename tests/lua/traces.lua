-- SPDX-License-Identifier: Apache-2.0
-- What the JIT compiler likes: calls inlined three deep, an inner loop, a
-- loop with side traces, spills. With -joff the same calls, interpreted.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock

local function square(x) --: square
  return x * x + 1
end

local function poly(x) --: poly
  return square(x) + square(x + 1) * 0.5
end

local function curve(x) --: curve
  local y = poly(x)
  if y > 50 then y = y - poly(x * 0.5) end
  return y
end

local function inlined(n) --: inlined
  local s = 0
  for i = 1, n do s = s + curve(i * 0.01) end
  return s
end

local function nested(n) --: nested
  local s = 0
  for i = 1, n do
    for j = 1, 50 do s = s + i * j end
  end
  return s
end

-- Each residue takes another path: side traces, and exits until they exist.
local function branchy(n) --: branchy
  local a, b, c, d = 0, 1, 2, 3
  local r = 0
  for i = 1, n do
    r = r + 1
    if r == 1 then a = a + i
    elseif r == 2 then b = b + a * 0.25
    elseif r == 3 then c = c - b * 0.5
    elseif r == 4 then d = d + square(c * 1e-9)
    elseif r == 5 then a, b = b, a
    else r = 0 end
    if d > 1e6 then d = 0 end
    if a > 1e6 or a < -1e6 then a = 0 end
    if b > 1e6 or b < -1e6 then b = 0 end
    if c > 1e6 or c < -1e6 then c = 0 end
  end
  return a + b + c + d
end

-- More live numbers than registers: the trace's stack frame grows.
local function spills(n) --: spills
  local a, b, c, d, e, f, g, h = 1, 2, 3, 4, 5, 6, 7, 8
  local i, j, k, l, m, o, p, q = 9, 10, 11, 12, 13, 14, 15, 16
  local r, s, t, u = 17, 18, 19, 20
  for x = 1, n do
    a = a * 0.9 + b; b = b * 0.9 + c; c = c * 0.9 + d; d = d * 0.9 + e
    e = e * 0.9 + f; f = f * 0.9 + g; g = g * 0.9 + h; h = h * 0.9 + i
    i = i * 0.9 + j; j = j * 0.9 + k; k = k * 0.9 + l; l = l * 0.9 + m
    m = m * 0.9 + o; o = o * 0.9 + p; p = p * 0.9 + q; q = q * 0.9 + r
    r = r * 0.9 + s; s = s * 0.9 + t; t = t * 0.9 + u; u = u * 0.9 + x
    if x > n - 2 then a = square(a * 1e-9) end
  end
  return a + b + c + d + e + f + g + h + i + j + k + l + m + o + p + q
end

local scale = jit.status() and 20 or 1
while go() do
  local t0 = clock()
  inlined(5000 * scale)
  local t1 = clock()
  nested(200 * scale)
  local t2 = clock()
  branchy(10000 * scale)
  local t3 = clock()
  spills(1000 * scale)
  local t4 = clock()
  add("inlined", t1 - t0)
  add("nested", t2 - t1)
  add("branchy", t3 - t2)
  add("spills", t4 - t3)
end
