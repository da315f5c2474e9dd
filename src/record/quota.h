/* What one company may take of the server at a time; 0: no limit. */
#pragma once

#include <stdint.h>

struct quota {
	int64_t leases; /* held or on their way to it */
	int64_t runs;   /* with a place or waiting for one, on each node; the others stay queued */
	int64_t queued; /* waiting for their turn; more are refused */
};
