/*
 * Takes secrets out of what is going to be written down for people. A last net: callers do not put
 * them there.
 */
#pragma once

#include <jansson.h>

#define REDACTED "***REDACTED***"
/* As text without them, allocated. References to secrets ({type:"secret_ref"}) are kept. */
char *redacted_text(const json_t *value);
