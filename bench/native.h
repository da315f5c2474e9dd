/* What benchmarks of native places share. */
#pragma once

#include "client.h"

/* A company for the benchmark. */
void native_company(struct client *c, char company_id[40]);
/* An environment with this config (JSON); false when the server refuses it. */
bool native_environment(struct client *c, const char *company_id, const char *name,
			const char *config, char environment_id[40]);
void native_acquire(struct client *c, const char *environment_id, char lease_id[40]);
/* Runs the command (a JSON array) there; ends the program when it fails. */
void native_exec(struct client *c, const char *lease_id, const char *command);
/*
 * What it costs on this machine to attach a process to a v1 cgroup after a pause, which everything
 * with limits pays sooner or later. The first line of every benchmark of native places.
 */
void native_print_attach_cost(void);
