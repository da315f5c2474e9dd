/*
 * Turns words into struct args.
 */
#pragma once

#include "cli/cli.h"

/* Reorders argv. ERR_BAD_REQUEST says what is wrong in a sentence. */
int args_parse(struct args *args, const struct verb *verb, int argc, char **argv,
	       struct error *err);
