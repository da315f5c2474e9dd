#include "cli/run_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/path.h"
#include "base/text.h"
#include "cli/progress.h"

#define CONFLICTS_SHOWN 5
#define HIDDEN_SHOWN 20

/* ---- before ---- */

bool ask_yes(const char *question)
{
	char answer[16] = "";

	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return false;
	fprintf(stderr, "berth: %s [y/N] ", question);
	if (!fgets(answer, sizeof(answer), stdin))
		return false;
	return answer[0] == 'y' || answer[0] == 'Y';
}

static bool is_large_allowed(const struct args *args)
{
	return args_has(args, "allow-large") || args_has(args, "yes");
}

static bool is_home(const char *path)
{
	const char *home = getenv("HOME");
	_cleanup_free_ char *canonical = home && home[0] ? realpath(home, NULL) : NULL;

	return canonical && streq(canonical, path);
}

/* All of a machine, or of a person's life, is rarely what was meant. */
static int guard(const struct args *args, const char *path, bool *allow, struct error *err)
{
	_cleanup_free_ char *question = NULL;
	const char *what = streq(path, "/") ? "the whole file system"
			   : is_home(path)  ? "your home directory"
					    : NULL;

	*allow = is_large_allowed(args);
	if (!what || *allow)
		return 0;
	question = xasprintf("%.200s is %s. Copy all of it into the sandbox?", path, what);
	*allow = ask_yes(question);
	if (*allow)
		return 0;
	return error_set(err, ERR_BAD_REQUEST,
			 "%.200s is %s: name a directory with --workspace, use --no-workspace, or "
			 "bring all of it with --allow-large",
			 path, what);
}

/*
 * Files of this machine are on the server's only when that is the same one: behind a socket it is.
 * Places without a relay, and this host itself, have no use for a copy.
 */
static bool goes_along(const struct cli *cli, const json_t *environment)
{
	const json_t *config = json_object_at(environment, "config");

	return !cli->url && str_equal(json_str(environment, "driver"), "sandbox") &&
	       !json_is_false(json_object_get(config, "relay"));
}

static const char *const NEED_WORKSPACE[] = { "no-collect", "collect", "show" };

static int check_flags(const struct args *args, struct error *err)
{
	bool none = args_has(args, "no-workspace") || str_equal(args_value(args, "mode"), "none");

	if (args_has(args, "collect") && args_has(args, "no-collect"))
		return error_set(err, ERR_BAD_REQUEST, "--collect or --no-collect, not both");
	if (!none)
		return 0;
	if (args_has(args, "workspace"))
		return error_set(err, ERR_BAD_REQUEST, "--workspace or --no-workspace, not both");
	for (size_t i = 0; i < ARRAY_SIZE(NEED_WORKSPACE); i++)
		if (args_has(args, NEED_WORKSPACE[i]))
			return error_set(err, ERR_BAD_REQUEST, "--%s needs a workspace",
					 NEED_WORKSPACE[i]);
	return 0;
}

static int need_workspace(const struct args *args, struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(NEED_WORKSPACE); i++)
		if (args_has(args, NEED_WORKSPACE[i]))
			return error_set(err, ERR_BAD_REQUEST,
					 "--%s needs a workspace: name one with --workspace",
					 NEED_WORKSPACE[i]);
	return 0;
}

/* The directory that goes along; NULL without an error: none. */
static int find_directory(const struct cli *cli, const struct args *args, const json_t *environment,
			  char **path, struct error *err)
{
	const char *named = args_value(args, "workspace");
	bool asked =
		named || (args_has(args, "mode") && !str_equal(args_value(args, "mode"), "none"));

	*path = NULL;
	if (check_flags(args, err) < 0)
		return -1;
	if (args_has(args, "no-workspace") || str_equal(args_value(args, "mode"), "none"))
		return 0;
	if (!asked && !goes_along(cli, environment))
		return need_workspace(args, err);
	if (named && cli->url) {
		*path = xstrdup(named); /* the server's own; it says what is wrong with it */
		return 0;
	}
	*path = realpath(named ? named : ".", NULL);
	if (!*path)
		return error_errno(err, errno, "workspace \"%s\"", named ? named : ".");
	return 0;
}

static bool is_beneath(const char *root, const char *path)
{
	size_t len = strlen(root);

	return streq(root, "/") ||
	       (strncmp(root, path, len) == 0 && (!path[len] || path[len] == '/'));
}

/*
 * A relative --cwd is one of here, and here is in the workspace. Standing in a directory of a
 * workspace that was named, the command stands in the same.
 */
static int put_directory(const struct args *args, const char *workspace, json_t *body,
			 struct error *err)
{
	const char *cwd = args_value(args, "cwd");
	_cleanup_free_ char *here = NULL;

	if (cwd && cwd[0] == '/') {
		json_put_str(body, "cwd", cwd);
		return 0;
	}
	here = realpath(cwd ? cwd : ".", NULL);
	if (cwd && !here)
		return error_errno(err, errno, "--cwd %s", cwd);
	if (here && is_beneath(workspace, here))
		json_put_str(body, "cwd", here);
	else if (cwd)
		return error_set(err, ERR_BAD_REQUEST, "--cwd %s is not in the workspace %s", cwd,
				 workspace);
	return 0;
}

/*
 * A path from here, in a workspace that may be elsewhere. The file itself may be a link: what is
 * shown is its name.
 */
static char *shown_path(const struct cli *cli, const char *workspace, const char *given,
			struct error *err)
{
	_cleanup_free_ char *copy = xstrdup(given), *dir = NULL, *full = NULL;
	size_t root = streq(workspace, "/") ? 0 : strlen(workspace);
	char *slash;

	while (strlen(copy) > 1 && str_ends(copy, "/"))
		copy[strlen(copy) - 1] = '\0';
	if (cli->url)
		return steal(copy); /* the server's own tree */
	slash = strrchr(copy, '/');
	if (slash)
		*slash = '\0';
	dir = realpath(!slash ? "." : copy[0] ? copy : "/", NULL);
	full = dir ? path_join(dir, slash ? slash + 1 : copy) : NULL;
	if (full && is_beneath(workspace, full) && full[root] == '/' && full[root + 1])
		return xstrdup(full + root + 1);
	error_set(err, ERR_BAD_REQUEST, "--show %s is not in the workspace %s", given, workspace);
	return NULL;
}

static int put_shown(const struct cli *cli, const struct args *args, const char *path,
		     json_t *workspace, struct error *err)
{
	json_t *shown = json_array();
	const char *given;

	json_put_new(workspace, "show", shown);
	for (size_t i = 0; (given = args_nth(args, "show", i)); i++) {
		_cleanup_free_ char *one = shown_path(cli, path, given, err);

		if (!one)
			return -1;
		json_array_append_new(shown, json_string(one));
	}
	return 0;
}

void print_empty_directory(const json_t *environment)
{
	fprintf(stderr,
		"berth: running in %s with an empty directory (no files copied). Use --env Local "
		"to "
		"run here\n",
		json_str(environment, "name"));
}

bool run_files_here(const struct args *args, json_t *body)
{
	_cleanup_free_ char *here = realpath(".", NULL);
	json_t *workspace;

	if (!here || ((streq(here, "/") || is_home(here)) && !is_large_allowed(args)))
		return false;
	workspace = json_object();
	json_put_str(workspace, "path", here);
	json_put_bool(workspace, "allowLarge", is_large_allowed(args));
	json_put_new(body, "workspace", workspace);
	json_put_bool(body, "workspaceIfSandbox", true);
	json_put_str(body, "cwd", here);
	return true;
}

int run_files_workspace(struct cli *cli, const struct args *args, const json_t *environment,
			json_t *body, struct error *err)
{
	_cleanup_free_ char *path = NULL;
	json_t *workspace;
	bool allow = is_large_allowed(args);

	if (find_directory(cli, args, environment, &path, err) < 0)
		return -1;
	if (!path) {
		if (environment && !cli->quiet && !args_has(args, "no-workspace") &&
		    !str_equal(json_str(environment, "driver"), "local") && !args_has(args, "cwd"))
			print_empty_directory(environment);
		return 0;
	}
	if (!cli->url && guard(args, path, &allow, err) < 0)
		return -1;
	workspace = json_object();
	json_put_str(workspace, "path", path);
	if (args_has(args, "mode"))
		json_put_str(workspace, "mode", args_value(args, "mode"));
	if (args_has(args, "no-collect") || args_has(args, "collect"))
		json_put_str(workspace, "collect",
			     args_has(args, "collect") ? args_value(args, "collect") : "manual");
	json_put_bool(workspace, "allowLarge", allow);
	json_put_new(body, "workspace", workspace);
	if (args_has(args, "show") && put_shown(cli, args, path, workspace, err) < 0)
		return -1;
	return cli->url ? 0 : put_directory(args, path, body, err);
}

/* ---- instead ---- */

static void print_size(FILE *to, int64_t bytes)
{
	char text[32];

	format_bytes(bytes, text, sizeof(text));
	fputs(text, to);
}

static void print_hidden(const json_t *plan)
{
	int64_t count = json_int(plan, "hiddenCount", 0);
	const json_t *one;
	size_t i;

	if (count == 0)
		return;
	printf("hidden from the command (--show PATH shows one):\n");
	json_array_foreach (json_object_get(plan, "hidden"), i, one) {
		if (i == HIDDEN_SHOWN)
			break;
		fputs("  ", stdout);
		print_cell(stdout, json_str(one, "path"));
		fputs("  by ", stdout);
		print_cell(stdout, json_str(one, "reason"));
		putchar('\n');
	}
	if (count > HIDDEN_SHOWN)
		printf("  and %lld more: --json lists them\n", (long long)count - HIDDEN_SHOWN);
}

int run_files_plan(struct cli *cli, struct api *api, const char *company_id, const json_t *body)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *plan = NULL, *asked = json_object();
	json_t *workspace = json_object_at(body, "workspace");

	if (!workspace) {
		if (cli->json)
			puts("null");
		else
			puts("no files would be brought, and none would come back");
		return 0;
	}
	json_put_ref(asked, "workspace", workspace);
	if (json_str(body, "environmentId"))
		json_put_str(asked, "environmentId", json_str(body, "environmentId"));
	if (api_callf(api, "POST", asked, &plan, &err, "/api/companies/%s/workspace-plan",
		      company_id) < 0)
		return cli_fail(cli, &err, EXIT_BERTH);
	if (cli->json) {
		print_json(plan);
		return 0;
	}
	printf("would bring %lld files, ", (long long)json_int(plan, "files", 0));
	print_size(stdout, json_int(plan, "bytes", 0));
	printf(", of ");
	print_cell(stdout, json_str(plan, "path"));
	printf(" (mode %s)", json_str(plan, "mode"));
	if (json_int(plan, "skippedCount", 0) > 0)
		printf("; %lld cannot be brought", (long long)json_int(plan, "skippedCount", 0));
	puts(str_equal(json_str(workspace, "collect"), "manual")
		     ? "\nwould keep what the command changes until `berth collect`"
		     : "\nwould merge what the command changes into the same directory");
	print_hidden(plan);
	return 0;
}

/* ---- afterwards ---- */

static void add_count(struct buf *text, const json_t *counts, const char *key, const char *one,
		      const char *many)
{
	int64_t n = json_int(counts, key, 0);

	if (n > 0)
		buf_printf(text, "%s%lld %s", text->len ? ", " : "", (long long)n,
			   n == 1 ? one : many);
}

char *run_files_counts(const json_t *counts)
{
	struct buf text = { 0 };

	add_count(&text, counts, "modified", "changed", "changed");
	add_count(&text, counts, "added", "added", "added");
	add_count(&text, counts, "deleted", "deleted", "deleted");
	add_count(&text, counts, "conflicts", "conflict", "conflicts");
	add_count(&text, counts, "keptHost", "deletion not done", "deletions not done");
	add_count(&text, counts, "held", "held back", "held back");
	add_count(&text, counts, "refused", "refused", "refused");
	add_count(&text, counts, "pending", "change", "changes");
	/* Those that came with files go without saying. */
	if (!text.len)
		add_count(&text, counts, "directories", "directory", "directories");
	buf_puts(&text, "");
	return buf_steal(&text);
}

/* Each that did not simply go its way, by name. */
static void print_trouble(struct api *api, const char *run_id)
{
	_cleanup_json_ json_t *report = NULL;
	const json_t *change;
	size_t i, shown = 0;

	if (api_callf(api, "GET", NULL, &report, NULL, "/api/runs/%s/changes?limit=10000", run_id) <
	    0)
		return;
	json_array_foreach (json_object_get(report, "changes"), i, change) {
		const char *beside = json_str(change, "beside"),
			   *reason = json_str(change, "reason");

		if (!beside && !reason)
			continue;
		if (shown++ == CONFLICTS_SHOWN) {
			fprintf(stderr, "berth:   and more: `berth diff --stat %s`\n", run_id);
			return;
		}
		fputs("berth:   ", stderr);
		print_cell(stderr, json_str(change, "path"));
		if (beside) {
			fputs(" kept beside as ", stderr);
			print_cell(stderr, beside);
		}
		if (reason && (!beside || str_equal(json_str(change, "fate"), "held"))) {
			fputs(": ", stderr);
			print_cell(stderr, reason);
		}
		fputc('\n', stderr);
	}
}

/* What came home and runs without being told to, by name. */
static void print_running(const json_t *workspace)
{
	const json_t *one;
	size_t i, shown = 0;

	json_array_foreach (json_object_get(workspace, "runsByItself"), i, one) {
		const char *fate = json_str(one, "fate");

		if (!str_equal(fate, "applied") && !str_equal(fate, "pending"))
			continue;
		if (shown++ == CONFLICTS_SHOWN) {
			fputs("berth:   and more\n", stderr);
			return;
		}
		if (shown == 1)
			fputs("berth: programs run these by themselves, read them first:\n",
			      stderr);
		fputs("berth:   ", stderr);
		print_cell(stderr, json_str(one, "path"));
		fprintf(stderr, ": run by %s\n", json_str(one, "runBy"));
	}
}

static const char *short_name(const char *ref)
{
	static const char heads[] = "refs/heads/";

	return str_starts(ref, heads) ? ref + strlen(heads) : ref;
}

/* Where commits went; those that are not where one would look for them, also when quiet. */
static void print_git(const struct cli *cli, const json_t *git)
{
	long long commits = (long long)json_int(git, "commits", 0);
	const char *reason = json_str(git, "reason"), *ref = json_str(git, "ref");
	const char *branch = json_str(git, "branch");
	bool moved = json_bool(git, "moved", false);
	const json_t *kept;
	size_t i;

	if (ref && !moved)
		fprintf(stderr, "berth: %lld commit%s kept as %s%s", commits,
			commits == 1 ? "" : "s", ref, reason ? ": " : "\n");
	else if (reason)
		fputs("berth: ", stderr);
	if (reason) {
		print_cell(stderr, reason);
		fputc('\n', stderr);
	}
	if (cli->quiet)
		return;
	if (moved && branch && commits > 0)
		fprintf(stderr, "berth: %lld commit%s on branch %s\n", commits,
			commits == 1 ? "" : "s", short_name(branch));
	json_array_foreach (json_object_get(git, "kept"), i, kept) {
		if (i == CONFLICTS_SHOWN) {
			fputs("berth: and more refs: see `git for-each-ref refs/berth-*`\n",
			      stderr);
			break;
		}
		fprintf(stderr, "berth: %s kept as %s\n", short_name(json_str(kept, "name")),
			json_str(kept, "ref"));
	}
}

static void print_files(const struct cli *cli, struct api *api, const char *id,
			const json_t *workspace)
{
	const json_t *counts = json_object_at(workspace, "counts");
	_cleanup_free_ char *text = run_files_counts(counts);
	bool trouble = json_int(counts, "conflicts", 0) + json_int(counts, "keptHost", 0) +
			       json_int(counts, "held", 0) + json_int(counts, "refused", 0) >
		       0;

	if (!text[0] || (cli->quiet && !trouble))
		return;
	if (str_equal(json_str(workspace, "phase"), "fetched")) {
		fprintf(stderr, "berth: %s kept: `berth collect %s` merges them\n", text, id);
	} else {
		fprintf(stderr, "berth: %s%s\n", text, trouble ? ":" : "");
		if (trouble)
			print_trouble(api, id);
	}
	if (!cli->quiet)
		print_running(workspace);
}

/* Hidden by a name that no rule mentions: somebody may look for the reason of a failure here. */
static void print_unseen(const struct cli *cli, const json_t *workspace)
{
	long long count =
		(long long)json_int(json_object_at(workspace, "staged"), "hiddenByName", 0);

	if (count > 0 && !cli->quiet)
		fprintf(stderr,
			"berth: %lld path%s hidden from the command by %s: `berth run --dry-run` "
			"lists %s\n",
			count, count == 1 ? " was" : "s were",
			count == 1 ? "its name" : "their names", count == 1 ? "it" : "them");
}

void run_files_summary(struct cli *cli, struct api *api, const json_t *run)
{
	const json_t *workspace = json_object_at(run, "workspace");
	const json_t *error = json_object_at(workspace, "error");
	const char *worktree = json_str(workspace, "worktree"), *id = json_str(run, "id");

	if (!workspace || cli->json)
		return;
	if (error) {
		fputs("berth: ", stderr);
		print_cell(stderr, json_str(error, "message"));
		fprintf(stderr, "; `berth collect %s` tries again\n", id);
		return;
	}
	print_unseen(cli, workspace);
	print_files(cli, api, id, workspace);
	if (json_object_at(workspace, "git"))
		print_git(cli, json_object_at(workspace, "git"));
	if (worktree && !cli->quiet) {
		fprintf(stderr, "berth: work is on branch berth/%s, checked out in ", id);
		print_cell(stderr, worktree);
		fputc('\n', stderr);
	}
}
