-- SPDX-License-Identifier: Apache-2.0
-- As many traces as the argument says, each a loop of its own with a call
-- that is inlined; prints "ready" when all are compiled, then runs them.
local wanted = tonumber(arg[1])

jit.opt.start("maxtrace=60000", "hotloop=3", "maxmcode=200000",
              "sizemcode=512")

local source = [[
local function inner(x) return x * 16807 % 2147483647 end
local function outer(x)
  if x % 2 == 1 then x = x + 1 end
  return inner(x) + 1
end
return function(n, x)
  for i = 1, n do x = outer(x) end
  return x
end
]]

local loops = {}
for i = 1, wanted do
  loops[i] = loadstring(source, "=loop" .. i)()
  loops[i](100, i)
end
print("ready")
io.stdout:flush()
while true do
  for i = 1, wanted do loops[i](2000, i) end
end
