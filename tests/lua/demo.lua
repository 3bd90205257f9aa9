-- SPDX-License-Identifier: Apache-2.0
-- The Lua side of scripts/demo: an imaginary shop that serves orders. Each
-- part is a way in which Lua time shows up in a profile.

-- A numeric loop: compiled by the JIT, one trace.
local function forecast_demand(seed)
  local x, total = seed / 100, 0
  for i = 1, 40000 do
    x = 3.7 * x * (1 - x)
    total = total + x * (i % 7)
  end
  return total
end

-- Text work: string.gsub, C code of the VM, calls back for every field.
local fields = { name = "Ada", city = "London", item = "difference engine" }

local function expand_field(key)
  return fields[key] or ("?" .. key .. "?")
end

local template = string.rep("Dear $name of $city, your $item is $state. ", 30)

local function render_letter()
  return (string.gsub(template, "%$(%w+)", expand_field))
end

-- table.sort calls the comparator from C code of the VM.
local function by_price(a, b)
  return a.price < b.price
end

local function rank_orders()
  local orders = {}
  for i = 1, 400 do
    orders[i] = { price = (i * 7919) % 4001 }
  end
  table.sort(orders, by_price)
  return orders
end

-- Recursion: each level is one frame.
local function count_routes(depth)
  if depth < 2 then
    return 1
  end
  return count_routes(depth - 1) + count_routes(depth - 2)
end

-- Coroutines: the stack of the consumer lies below that of the producer.
local function read_stock()
  for shelf = 1, 1000 do
    coroutine.yield(shelf, tostring(shelf * 17))
  end
end

local function take_stock()
  local sum = 0
  for shelf, text in coroutine.wrap(read_stock) do
    sum = sum + shelf * #text
  end
  return sum
end

-- Called from the C function host.each_order(), and calls C in turn.
local function handle_order(i)
  local letter = render_letter()
  host.checksum(letter)
  if i == 8 then
    rank_orders()
  end
end

function serve()
  forecast_demand(37)
  host.each_order(8, handle_order)
  count_routes(21)
  take_stock()
end
