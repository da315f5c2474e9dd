/*
 * What `berth run` brings along: which directory goes into the place, whether it may, and what is
 * said about it before and afterwards.
 */
#pragma once

#include "cli/api.h"
#include "cli/follow.h"

/*
 * Puts `workspace` and `cwd` into the body of a run. `environment` is where it will run, NULL when
 * the server decides. Asks on a terminal before all of / or a home directory goes along, and
 * refuses without one.
 */
int run_files_workspace(struct cli *cli, const struct args *args, const json_t *environment,
			json_t *body, struct error *err);
/*
 * The same without knowing the environment: this directory, where the server finds that it is a
 * sandbox. False: a question comes before that, and nothing is put.
 */
bool run_files_here(const struct args *args, json_t *body);
void print_empty_directory(const json_t *environment);
/* --dry-run: what would go along, on stdout. Returns the exit code. */
int run_files_plan(struct cli *cli, struct api *api, const char *company_id, const json_t *body);
/* A yes on the terminal; false without one. */
bool ask_yes(const char *question);

/* What came of the files of a run that has ended, on stderr; says nothing when nothing changed. */
void run_files_summary(struct cli *cli, struct api *api, const json_t *run);
/* "3 changed, 1 added, 1 conflict" of a report; allocated, "" when nothing changed. */
char *run_files_counts(const json_t *counts);
