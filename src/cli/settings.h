/*
 * What `berth serve` can be told, in one table: the flags of the verb, the keys of the config file
 * and the variables of the environment are all made from it. A flag counts more than a variable, a
 * variable more than the file, the file more than what is usual.
 *
 *     --log-format json      BERTH_LOG_FORMAT=json      log-format: json
 */
#pragma once

#include "api/server.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/config_file.h"

struct settings {
	struct server_options server;
	const char *log_level, *log_format;
	bool verbose;

	struct config_file file;
	bool has_file;
	char **owned;     /* texts the options point to */
	json_t *problems; /* borrowed: gets a sentence for each; NULL: the first one ends it */
};

/*
 * X(name, letter, kind, member, value, usual, summary): kind is one of
 *
 *     TEXT   const char *       SWITCH bool            LIST   char ** (may repeat)
 *     TIME   int64_t, ms        COUNT  int64_t         WORD   const char *, one of `value`
 */
#define SERVE_SETTINGS(X)                                                                          \
	X("listen", 0, TEXT, server.listen, "ADDR:PORT", NULL,                                     \
	  "also listen on TCP (127.0.0.1:7411; port 0 picks one)")                                 \
	X("socket", 0, TEXT, server.socket_path, "PATH", NULL,                                     \
	  "unix socket; default: berth.sock in the data directory")                                \
	X("database", 0, TEXT, server.database_url, "URL", NULL,                                   \
	  "postgres://... instead of the embedded database")                                       \
	X("tls-cert", 0, TEXT, server.tls_cert, "FILE", NULL,                                      \
	  "certificate chain (PEM): TCP speaks TLS; SIGHUP reads it again")                        \
	X("tls-key", 0, TEXT, server.tls_key, "FILE", NULL,                                        \
	  "its key (PEM), readable by its owner and group only")                                   \
	X("insecure-http", 0, SWITCH, server.insecure_http, NULL, "false",                         \
	  "listen beyond loopback without TLS")                                                    \
	X("allowed-host", 0, LIST, server.allowed_hosts, "NAME", NULL,                             \
	  "a host name clients may use for this server")                                           \
	X("public-url", 0, TEXT, server.public_url, "URL", NULL,                                   \
	  "how runs reach this server; default: where it listens")                                 \
	X("run-key", 0, TEXT, server.run_key_path, "FILE", NULL,                                   \
	  "key of run tokens, the same on every node; default: jwt.key in the data directory")     \
	X("allow-fake", 0, SWITCH, server.allow_fake, NULL, "false",                               \
	  "environments may use the fake provider (tests)")                                        \
	X("allow-local-for-tokens", 0, SWITCH, server.allow_local_for_tokens, NULL, "false",       \
	  "people with tokens may run commands on this host")                                      \
	X("default-environment", 0, TEXT, server.default_environment, "NAME", "Sandbox",           \
	  "environment of runs that choose none; Local is this host")                              \
	X("no-local", 0, SWITCH, server.no_local, NULL, "false",                                   \
	  "run no command on this host, whatever a record chooses")                                \
	X("allow-root", 0, LIST, server.allow.list[ALLOW_ROOT], "DIR", NULL,                       \
	  "tokens may use roots of native places below DIR; COMPANY=DIR limits it to one company") \
	X("allow-mount", 0, LIST, server.allow.list[ALLOW_MOUNT], "DIR", NULL,                     \
	  "tokens may mount directories below DIR, read-only; COMPANY=DIR limits it to one "       \
	  "company")                                                                               \
	X("allow-mount-rw", 0, LIST, server.allow.list[ALLOW_MOUNT_RW], "DIR", NULL,               \
	  "the same, writable; needs --allow-writable-mounts-for-tokens")                          \
	X("allow-workspace", 0, LIST, server.allow.list[ALLOW_WORKSPACE], "DIR", NULL,             \
	  "tokens may use workspaces below DIR; COMPANY=DIR limits it to one company")             \
	X("allow-host-network-for-tokens", 0, SWITCH, server.allow.open[ALLOW_HOST_NETWORK], NULL, \
	  "false", "tokens may use network host")                                                  \
	X("allow-writable-mounts-for-tokens", 0, SWITCH, server.allow.open[ALLOW_WRITABLE_MOUNTS], \
	  NULL, "false", "tokens may use writable mounts, below --allow-mount-rw")                 \
	X("allow-root-user-for-tokens", 0, SWITCH, server.allow.open[ALLOW_ROOT_USER], NULL,       \
	  "false", "tokens may be root of their places")                                           \
	X("allow-in-place-for-tokens", 0, SWITCH, server.allow.open[ALLOW_IN_PLACE], NULL,         \
	  "false", "tokens may use mode in_place, below --allow-workspace")                        \
	X("allow-sockets-for-tokens", 0, SWITCH, server.allow.open[ALLOW_SOCKETS], NULL, "false",  \
	  "tokens may use sockets: true, which leaves unix sockets in mounts reachable")           \
	X("idle-exit", 0, SWITCH, server.idle_exit, NULL, "false",                                 \
	  "exit when nothing runs and no request came for a minute")                               \
	X("idle-after", 0, TIME, server.idle_exit_ms, "TIME", "60s",                               \
	  "with --idle-exit: exit after this long")                                                \
	X("drain", 0, SWITCH, server.drain, NULL, "false",                                         \
	  "on SIGTERM wait for running runs to end")                                               \
	X("retention", 0, TIME, server.retention_ms, "TIME", "30d",                                \
	  "delete finished history older than this")                                               \
	X("sweep-every", 0, TIME, server.sweep_ms, "TIME", "1s",                                   \
	  "how often to look for leases that are over")                                            \
	X("reconcile-every", 0, TIME, server.reconcile_ms, "TIME", "30s",                          \
	  "how often to compare with the providers")                                               \
	X("retry-after", 0, TIME, server.cleanup_base_ms, "TIME", "1s",                            \
	  "first pause before a failed cleanup is tried again")                                    \
	X("beat-every", 0, TIME, server.beat_ms, "TIME", "10s",                                    \
	  "how often to record that this node is alive")                                           \
	X("compress-after", 0, TIME, server.pack_ms, "TIME", "60s",                                \
	  "compress the log of a run that ended this long ago")                                    \
	X("absence", 0, TIME, server.absence_ms, "TIME", "15m",                                    \
	  "a place ends itself when no server has spoken to it for this long")                     \
	X("max-runs", 0, COUNT, server.max_runs, "N", "256",                                       \
	  "most runs at a time, the others wait; fewer if the limit of open files is low")         \
	X("max-leases-per-company", 0, COUNT, server.quota.leases, "N", "1024",                    \
	  "most leases of a company at a time; 0: no limit")                                       \
	X("max-runs-per-company", 0, COUNT, server.quota.runs, "N", "192",                         \
	  "most runs of a company at a time, the others wait; 0: no limit")                        \
	X("max-queue-per-company", 0, COUNT, server.quota.queued, "N", "10000",                    \
	  "most queued runs of a company; more are refused; 0: no limit")                          \
	X("max-collect-files", 0, COUNT, server.max_collect_files, "N", "1000000",                 \
	  "most files collected from one run; the rest is left behind and reported")               \
	X("max-collect-mb", 0, COUNT, server.max_collect_mb, "N", "16384",                         \
	  "most MiB collected from one run; the rest is left behind and reported")                 \
	X("metrics-public", 0, SWITCH, server.metrics_public, NULL, "false",                       \
	  "open /metrics to every caller that can connect")                                        \
	X("log-level", 0, WORD, log_level, "debug|info|warn|error", "info",                        \
	  "lowest level to log; debug logs every request")                                         \
	X("log-format", 0, WORD, log_format, "text|json", "text", "format of log lines")           \
	X("log-file", 0, TEXT, server.log_file, "PATH", NULL,                                      \
	  "log to this file instead of stderr; SIGHUP opens it again")                             \
	X("verbose", 'v', SWITCH, verbose, NULL, "false", "the same as --log-level debug")

extern const struct flag SERVE_FLAGS[];
/* Flags there were once, with what is said to whoever gives one. */
extern const struct flag SERVE_FORMER_FLAGS[];
/* What a flag is when nobody says anything; NULL: nothing. */
const char *settings_defaults(const char *flag);

/*
 * Reads the config file (--config, else berth.yaml in the data directory, else
 * /etc/berth/berth.yaml, else none), the environment and the flags. `args` may be of any verb that
 * takes --config; NULL: none. Clear it with settings_clear, after the server has gone.
 */
int settings_read(struct settings *settings, const struct cli *cli, const struct args *args,
		  struct error *err);
/*
 * The same, and everything that is wrong as a list of sentences: also what a server would only
 * complain about, such as an environment whose config it would not take.
 */
void settings_check(struct settings *settings, const struct cli *cli, const struct args *args,
		    json_t *problems);
void settings_clear(struct settings *settings);
/* [{name, value, source}]: as they are, and where each was said. */
json_t *settings_json(const struct settings *settings, const struct args *args);
