/*
 * Takes secrets out of what is going to be written down for people. A last net: callers do not put
 * them there.
 */
#pragma once

#include <jansson.h>

#define REDACTED "***REDACTED***"
/* A copy without them, new reference. References to secrets ({type:"secret_ref"}) are kept. */
json_t *redacted(const json_t *value);
