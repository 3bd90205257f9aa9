-- SPDX-License-Identifier: Apache-2.0
-- A module whose main chunk is collected after it has run: its functions can
-- only be named by the tables and upvalues that hold them. Here none is
-- defined under a name; the keys of `expected` are the names to be found.
local function make()
	return function() end
end
local function make_self()
	return function(self) return self end
end

local util, expected = {}, {}

-- A function of one prototype cannot have two names: each has its own source.
local serial = 0
local function fresh(name, with_self)
	serial = serial + 1
	local text = ("return function(%s) return %d end"):format(
		with_self and "self" or "", serial)
	local f = assert(loadstring(text, "=made" .. serial))()
	if name then
		expected[name] = f
	end
	return f
end
assert(make and make_self)

util.trim = fresh("util.trim")
util.obj = { run = fresh("util.obj:run", true) }
util.deep = { er = { still = fresh("util.deep.er.still") } }

Account = { deposit = fresh("Account:deposit", true) }
Account.__index = Account
Account.new = fresh("Account.new")
Account.alias = util.trim
dynamic_global = fresh("dynamic_global")
local secret = fresh("secret")
local hidden = { inner = fresh("hidden.inner") }
function util.uses()
	return secret, hidden
end
local base = setmetatable({}, { __index = { inherited = fresh(
	"instance:inherited", true) } })
instance = base

return { util = util, callable = fresh("callable"),
	slashed = { f = fresh("slashed.f") }, expected = expected }
