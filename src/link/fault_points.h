/*
 * Everything this room says to a relay or the keeper that changes something passes through here:
 * a fault point before it and one after it, named after what is said.
 */
#pragma once

#include "base/fault.h"

/* `call` is an expression that is 0 or negative; the whole is too. */
#define SAY_GUARDED(label, call, err)                                                              \
	({                                                                                         \
		FAULT_POINT_REGISTER(_before, label ".before");                                    \
		FAULT_POINT_REGISTER(_after, label ".after");                                      \
		int _rc = fault_hit(&_before, (err));                                              \
		if (_rc == 0)                                                                      \
			_rc = (call);                                                              \
		if (_rc == 0)                                                                      \
			_rc = fault_hit(&_after, (err));                                           \
		_rc;                                                                               \
	})
