/*
 * No lost work, tried with random trees. A tree is staged; the place and the host's people edit it,
 * each for themselves; the results are applied, with people still at work between any two steps and
 * with kills at any step; and a plain three-way model, which knows nothing of how it is done, says
 * what must be there in the end.
 *
 * Every content is a number of its own, so that nothing can be lost without being missed. Each seed
 * is reproducible: BERTH_SEED=n runs one, BERTH_SEEDS=n that many.
 */
#include "files_fixture.h"

#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <time.h>
#include "base/fault.h"

#define SEEDS 500
#define MAX_NODES 96
#define MAX_TOKENS 512
#define PATH_LEN 160

/* --- chance --- */

static uint64_t chance_state;

static uint32_t chance(uint32_t n)
{
	chance_state ^= chance_state << 13;
	chance_state ^= chance_state >> 7;
	chance_state ^= chance_state << 17;
	return (uint32_t)((chance_state >> 16) % n);
}

static void chance_seed(uint64_t seed)
{
	chance_state = seed * 0x9e3779b97f4a7c15ULL + 0x1234567;
	for (int i = 0; i < 8; i++)
		chance(2);
}

/* --- the model of a tree --- */

struct node {
	char path[PATH_LEN];
	enum tree_type type; /* TREE_DIR, TREE_FILE, TREE_SYMLINK */
	uint32_t token;      /* what is in it, or where it points */
	mode_t mode;
};

struct model {
	struct node nodes[MAX_NODES];
	size_t count;
	int fd; /* the same is done in this directory; -1: in none */
};

static struct node *model_find(struct model *m, const char *path)
{
	for (size_t i = 0; i < m->count; i++) {
		if (streq(m->nodes[i].path, path))
			return &m->nodes[i];
	}
	return NULL;
}

static void token_text(uint32_t token, char out[16])
{
	snprintf(out, 16, "%08u", token);
}

static bool is_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return strncmp(path, dir, len) == 0 && path[len] == '/';
}

static void parent_of(const char *path, char out[PATH_LEN])
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	memmove(out, path, len);
	out[len] = '\0';
}

static void model_remove(struct model *m, const char *path)
{
	/* Children come behind their directory, so from the end. */
	for (size_t i = m->count; i--;) {
		struct node *n = &m->nodes[i];

		if (!streq(n->path, path) && !is_below(n->path, path))
			continue;
		if (m->fd >= 0)
			unlinkat(m->fd, n->path, n->type == TREE_DIR ? AT_REMOVEDIR : 0);
		memmove(n, n + 1, (m->count - i - 1) * sizeof(*n));
		m->count--;
	}
}

static struct node *model_add(struct model *m, const char *path, enum tree_type type)
{
	struct node *n = &m->nodes[m->count++];

	assert_true(m->count < MAX_NODES);
	*n = (struct node){ .type = type };
	assert_true(strlen(path) < sizeof(n->path));
	memcpy(n->path, path, strlen(path) + 1);
	return n;
}

static void model_mkdir(struct model *m, const char *path)
{
	struct node *n = model_find(m, path);
	char parent[PATH_LEN];

	if (!*path || (n && n->type == TREE_DIR))
		return;
	if (n)
		model_remove(m, path);
	parent_of(path, parent);
	model_mkdir(m, parent);
	model_add(m, path, TREE_DIR)->mode = 0755;
	if (m->fd >= 0)
		assert_return_code(mkdirat(m->fd, path, 0755), errno);
}

static void host_write(int fd, const char *path, uint32_t token, mode_t mode, bool in_place,
		       bool keep_mtime)
{
	char text[16], temp[PATH_LEN + 2];
	struct stat before;
	bool had = fstatat(fd, path, &before, AT_SYMLINK_NOFOLLOW) == 0;
	int file;

	token_text(token, text);
	memcpy(temp, path, strlen(path));
	memcpy(temp + strlen(path), "~", 2);
	file = openat(fd, in_place ? path : temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
	assert_true(file >= 0);
	assert_int_equal(write(file, text, 8), 8);
	fchmod(file, mode);
	if (had && keep_mtime) {
		struct timespec times[2] = { before.st_atim, before.st_mtim };

		futimens(file, times);
	}
	close(file);
	if (!in_place)
		assert_return_code(renameat(fd, temp, fd, path), errno);
}

static void model_write(struct model *m, const char *path, uint32_t token, mode_t mode)
{
	struct node *n = model_find(m, path);
	char parent[PATH_LEN];
	bool in_place = n && n->type == TREE_FILE && chance(2);

	if (n && n->type != TREE_FILE)
		model_remove(m, path);
	parent_of(path, parent);
	model_mkdir(m, parent);
	n = model_find(m, path);
	if (!n)
		n = model_add(m, path, TREE_FILE);
	n->token = token;
	n->mode = mode;
	if (m->fd >= 0)
		host_write(m->fd, path, token, mode, in_place, chance(2));
}

static void model_link(struct model *m, const char *path, uint32_t token)
{
	char parent[PATH_LEN], text[16];

	model_remove(m, path);
	parent_of(path, parent);
	model_mkdir(m, parent);
	model_add(m, path, TREE_SYMLINK)->token = token;
	token_text(token, text);
	if (m->fd >= 0)
		assert_return_code(symlinkat(text, m->fd, path), errno);
}

static bool node_equal(const struct node *a, const struct node *b)
{
	if (!a || !b)
		return !a && !b;
	if (a->type != b->type)
		return false;
	return a->type == TREE_DIR ||
	       (a->token == b->token && (a->type == TREE_SYMLINK || a->mode == b->mode));
}

static bool is_leaf(const struct node *n)
{
	return n && n->type != TREE_DIR;
}

/* --- what people must not lose --- */

/* Shared with children that are killed. */
struct ledger {
	uint32_t next;
	struct {
		uint32_t token;
		bool needed;
	} tokens[MAX_TOKENS];
	size_t count;
	uint64_t chance;
	int steps, kill_at;
};

static struct ledger *ledger;

static void need(uint32_t token)
{
	assert_true(ledger->count < MAX_TOKENS);
	ledger->tokens[ledger->count].token = token;
	ledger->tokens[ledger->count++].needed = true;
}

/* A person who writes over it, or deletes it, has seen it and means it. */
static void give_up(uint32_t token)
{
	need(token);
	for (size_t i = 0; i < ledger->count; i++) {
		if (ledger->tokens[i].token == token)
			ledger->tokens[i].needed = false;
	}
}

static uint32_t new_token(void)
{
	return ++ledger->next;
}

/* --- one trial --- */

struct trial {
	uint64_t seed;
	struct files f;
	struct model base, place, host, final;
	struct told_list told;
	bool meddles, kills, cached;
	char *wrong; /* what was violated */
};

static void violation(struct trial *t, const char *fmt, ...)
{
	va_list ap;
	char text[400];

	if (t->wrong)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	t->wrong = xstrdup(text);
}

static void random_path(char out[PATH_LEN])
{
	static const char *const names[] = { "a", "b", "c", "a.b" };
	size_t depth = 1 + chance(3);

	out[0] = '\0';
	for (size_t i = 0; i < depth; i++) {
		size_t len = strlen(out);

		snprintf(out + len, PATH_LEN - len, "%s%s", i ? "/" : "", names[chance(4)]);
	}
}

static void random_edit(struct model *m, uint32_t token)
{
	char path[PATH_LEN];
	struct node *n;

	random_path(path);
	n = model_find(m, path);
	switch (chance(8)) {
	case 0:
	case 1:
		model_remove(m, path);
		break;
	case 2:
		model_mkdir(m, path);
		break;
	case 3:
		model_link(m, path, token);
		break;
	case 4:
		if (n && n->type == TREE_FILE) {
			n->mode ^= 0111;
			if (m->fd >= 0)
				assert_int_equal(fchmodat(m->fd, path, n->mode, 0), 0);
			break;
		}
		model_write(m, path, token, 0755);
		break;
	default:
		model_write(m, path, token, 0644);
		break;
	}
}

static int by_path(const void *a, const void *b)
{
	const struct node *x = a, *y = b;

	return tree_path_compare(x->path, strlen(x->path), y->path, strlen(y->path));
}

static void scan_base(struct trial *t, const char *name)
{
	char cache[128];
	struct scan_options options = { .hash = true,
					.skip_git = true,
					.threads = 1,
					.cancel_fd = -1,
					.cache_dir = t->cached ? cache : NULL };
	struct scan_report report;
	struct error err = { 0 };

	snprintf(cache, sizeof(cache), "%s/cache", t->f.path);
	must(workspace_scan(t->f.host_fd, &options, t->f.run_fd, name, &report, &err), &err);
	scan_report_clear(&report);
	if (t->cached)
		workspace_cache(cache, t->f.host_fd, t->f.run_fd, name);
}

/* Files that were written in this tick of the clock are never believed by their times. */
static void let_tick_pass(void)
{
	struct timespec then, now;

	for (int i = 0; i < 2; i++) {
		clock_gettime(CLOCK_REALTIME_COARSE, &then);
		do {
			sched_yield();
			clock_gettime(CLOCK_REALTIME_COARSE, &now);
		} while (now.tv_nsec == then.tv_nsec && now.tv_sec == then.tv_sec);
	}
}

static void make_base(struct trial *t)
{
	for (uint32_t i = 6 + chance(12); i--;)
		random_edit(&t->host, new_token());
	if (t->cached) {
		close(open_made(t->f.fd, "cache"));
		let_tick_pass();
		scan_base(t, "earlier");
		/* As a compiler or a script that restores times would. */
		for (size_t i = 0; i < t->host.count; i++) {
			struct node *n = &t->host.nodes[i];

			if (n->type != TREE_FILE || chance(2))
				continue;
			n->token = new_token();
			host_write(t->host.fd, n->path, n->token, n->mode, true, true);
		}
		let_tick_pass();
	}
	scan_base(t, RESULTS_BASE);
	t->base = t->host;
	t->base.fd = -1;
	t->place = t->base;
}

static void edit_both(struct trial *t)
{
	for (uint32_t i = 1 + chance(10); i--;)
		random_edit(&t->place, new_token());
	for (uint32_t i = chance(8); i--;)
		random_edit(&t->host, new_token());
	/* Sometimes both come to the same. */
	if (chance(3) == 0) {
		uint32_t token = new_token();
		char path[PATH_LEN];

		random_path(path);
		model_write(&t->place, path, token, 0644);
		model_write(&t->host, path, token, 0644);
	}
}

static void emit(struct trial *t, struct manifest_writer *w, const char *path, const struct node *n)
{
	struct tree_entry e = { .path = path, .path_len = (uint32_t)strlen(path) };
	struct error err = { 0 };
	char text[16];

	if (n) {
		e.type = n->type;
		e.mode = n->mode;
		token_text(n->token, text);
	}
	if (n && n->type == TREE_FILE) {
		e = forge_file(&t->f, path, text);
		e.mode = n->mode;
	} else if (n && n->type == TREE_SYMLINK) {
		e.target = text;
		e.target_len = 8;
	}
	must(manifest_add(w, &e, &err), &err);
}

/* What an honest fetch would have found, straight from the models. */
static void fill_results(struct trial *t)
{
	struct model all = { .fd = -1 };
	struct manifest_writer *w;
	struct error err = { 0 };

	for (size_t i = 0; i < t->base.count; i++)
		all.nodes[all.count++] = t->base.nodes[i];
	for (size_t i = 0; i < t->place.count && all.count < MAX_NODES; i++) {
		if (!model_find(&all, t->place.nodes[i].path))
			all.nodes[all.count++] = t->place.nodes[i];
	}
	qsort(all.nodes, all.count, sizeof(*all.nodes), by_path);
	must(manifest_create(t->f.run_fd, RESULTS_CHANGES, &w, &err), &err);
	for (size_t i = 0; i < all.count; i++) {
		const char *path = all.nodes[i].path;
		struct node *b = model_find(&t->base, path), *p = model_find(&t->place, path);

		if (!node_equal(b, p))
			emit(t, w, path, p);
	}
	must(manifest_commit(w, &err), &err);
	t->f.state.phase = PHASE_FETCHED;
}

/* --- people at work while it is applied --- */

static bool read_token(int fd, const char *path, uint32_t *token)
{
	char text[16] = "";
	ssize_t n = readlinkat(fd, path, text, sizeof(text) - 1);

	if (n < 0) {
		int file = openat(fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);

		n = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
		if (file >= 0)
			close(file);
	}
	if (n != 8)
		return false;
	*token = (uint32_t)strtoul(text, NULL, 10);
	return true;
}

static void meddle_once(struct trial *t)
{
	int fd = t->f.host_fd;
	char path[PATH_LEN];
	struct stat st;
	uint32_t token;
	bool had, file;

	random_path(path);
	had = read_token(fd, path, &token);
	file = fstatat(fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
	switch (chance(5)) {
	case 0:
		if (unlinkat(fd, path, 0) == 0 && had)
			give_up(token);
		return;
	case 1:
		mkdirat(fd, path, 0755);
		return;
	default:
		break;
	}
	/* Only where a file can be: no parent, or a directory there, and the person gives up. */
	if (fstatat(fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? S_ISDIR(st.st_mode)
							     : errno != ENOENT)
		return;
	if (!file) {
		int made = openat(fd, path, O_WRONLY | O_CREAT | O_EXCL, 0644);

		if (made < 0)
			return;
		close(made);
		file = true;
		had = false;
	}
	if (had)
		give_up(token);
	token = new_token();
	need(token);
	host_write(fd, path, token, 0644, chance(2), chance(2));
}

static void at_step(void *arg, const char *step)
{
	struct trial *t = arg;

	(void)step;
	if (++ledger->steps == ledger->kill_at)
		kill(getpid(), SIGKILL);
	chance_state = ledger->chance;
	if (t->meddles && chance(6) == 0)
		meddle_once(t);
	ledger->chance = chance_state;
}

static void apply_in_child(struct trial *t, int kill_at)
{
	struct apply_options options = { .cancel_fd = -1, .at_step = at_step, .at_step_arg = t };
	pid_t pid;
	int status;

	ledger->steps = 0;
	ledger->kill_at = kill_at;
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		files_apply(&t->f, &options, &t->told, NULL);
		_exit(0);
	}
	assert_true(waitpid(pid, &status, 0) == pid);
	if (WIFSIGNALED(status))
		assert_int_equal(WTERMSIG(status), SIGKILL);
	else
		assert_int_equal(WEXITSTATUS(status), 0);
}

static void apply_all(struct trial *t)
{
	struct apply_options options = { .cancel_fd = -1, .at_step = at_step, .at_step_arg = t };

	ledger->chance = chance_state;
	for (uint32_t i = t->kills ? 1 + chance(2) : 0; i--;)
		apply_in_child(t, 1 + (int)chance(30));
	ledger->steps = ledger->kill_at = 0;
	files_apply(&t->f, &options, &t->told, NULL);
	chance_state = ledger->chance;
}

/* --- what is there in the end --- */

static int read_final(void *arg, const struct tree_entry *e, int dir_fd, const char *name,
		      struct error *err)
{
	struct trial *t = arg;
	struct node *n;

	(void)err;
	if (tree_path_is_within(e->path, e->path_len, ".berth", 6))
		return 0;
	if (t->final.count == MAX_NODES - 1 || e->path_len >= PATH_LEN) {
		violation(t, "unexpected entry %s", e->path);
		return 0;
	}
	n = model_add(&t->final, e->path, e->type);
	n->mode = e->mode;
	if (e->type != TREE_DIR && !read_token(dir_fd, name, &n->token))
		violation(t, "%s has a content nobody wrote", e->path);
	return 0;
}

static void load_final(struct trial *t)
{
	struct error err = { 0 };

	t->final.fd = -1;
	must(tree_walk(t->f.host_fd, &(struct tree_walk_options){ 0 }, read_final, t, &err), &err);
}

static bool is_anywhere(struct trial *t, uint32_t token)
{
	for (size_t i = 0; i < t->final.count; i++) {
		if (is_leaf(&t->final.nodes[i]) && t->final.nodes[i].token == token)
			return true;
	}
	return false;
}

static bool is_given_up(uint32_t token)
{
	for (size_t i = 0; i < ledger->count; i++) {
		if (ledger->tokens[i].token == token && !ledger->tokens[i].needed)
			return true;
	}
	return false;
}

/* The promise itself: whatever people wrote and did not replace is in the tree. */
static void check_nothing_lost(struct trial *t)
{
	for (size_t i = 0; i < ledger->count; i++) {
		if (ledger->tokens[i].needed && !is_anywhere(t, ledger->tokens[i].token))
			violation(t, "the host's %08u is lost", ledger->tokens[i].token);
	}
	for (size_t i = 0; i < t->place.count; i++) {
		const struct node *p = &t->place.nodes[i];
		const struct node *b = model_find(&t->base, p->path);

		if (is_leaf(p) && !node_equal(p, b) && !(b && b->token == p->token) &&
		    !is_given_up(p->token) && !is_anywhere(t, p->token))
			violation(t, "the place's %08u (%s) is lost", p->token, p->path);
	}
}

/* Whether something of the host's stays below a directory that the place made a file of. */
static bool is_emptied(struct trial *t, const char *dir)
{
	for (size_t i = 0; i < t->host.count; i++) {
		const struct node *h = &t->host.nodes[i];

		if (is_below(h->path, dir) && !node_equal(h, model_find(&t->base, h->path)))
			return false;
	}
	return true;
}

/* Whether the way down to a path is open to the place. */
static bool is_reachable(struct trial *t, const char *path)
{
	char dir[PATH_LEN];

	for (parent_of(path, dir); *dir; parent_of(dir, dir)) {
		const struct node *h = model_find(&t->host, dir);
		const struct node *b = model_find(&t->base, dir);

		if (h && h->type == TREE_DIR)
			continue;
		if (!h && (!b || b->type == TREE_DIR))
			continue;
		if (is_leaf(h) && node_equal(h, b))
			continue; /* the place made a directory of it */
		return false;
	}
	return true;
}

static bool is_beside(struct trial *t, const char *path)
{
	for (size_t i = 0; i < t->told.count; i++) {
		if (streq(t->told.items[i].beside, path) || is_below(path, t->told.items[i].beside))
			return true;
	}
	/* A directory that goes around an obstacle is told by what is in it. */
	return strstr(path, ".berth-") != NULL;
}

static void check_path(struct trial *t, const char *path)
{
	const struct node *b = model_find(&t->base, path), *p = model_find(&t->place, path);
	const struct node *h = model_find(&t->host, path), *f = model_find(&t->final, path);

	if (node_equal(p, h) || node_equal(p, b)) {
		/* The host's own; directories on the way to something new may have come. */
		if (!node_equal(f, h) && !(f && f->type == TREE_DIR && !h))
			violation(t, "%s: the host's is not there", path);
		return;
	}
	if (!node_equal(h, b)) {
		if (!node_equal(f, h) && !(f && f->type == TREE_DIR && !h))
			violation(t, "%s: changed on the host and not kept", path);
		return;
	}
	if (!is_reachable(t, path))
		return;
	if (h && h->type == TREE_DIR) {
		if (!is_emptied(t, path)) {
			if (!f || f->type != TREE_DIR)
				violation(t, "%s: a directory in use is gone", path);
		} else if (!node_equal(f, p)) {
			violation(t, "%s: the place's is not there (was a directory)", path);
		}
		return;
	}
	if (!node_equal(f, p))
		violation(t, "%s: the place's is not there", path);
}

static void check_model(struct trial *t)
{
	for (size_t i = 0; i < t->base.count; i++)
		check_path(t, t->base.nodes[i].path);
	for (size_t i = 0; i < t->place.count; i++)
		check_path(t, t->place.nodes[i].path);
	for (size_t i = 0; i < t->host.count; i++)
		check_path(t, t->host.nodes[i].path);
	for (size_t i = 0; i < t->final.count; i++) {
		const struct node *f = &t->final.nodes[i];

		if (is_leaf(f) && !node_equal(f, model_find(&t->host, f->path)) &&
		    !node_equal(f, model_find(&t->place, f->path)) && !is_beside(t, f->path))
			violation(t, "%s is nobody's", f->path);
	}
}

/* Each change is told once, and what is told to be beside is. */
static void check_told(struct trial *t)
{
	for (size_t i = 0; i < t->told.count; i++) {
		const struct told *told = &t->told.items[i];
		const struct node *f = *told->beside ? model_find(&t->final, told->beside) : NULL;

		if (told->fate == FATE_PENDING || told->fate == FATE_REFUSED)
			violation(t, "%s is %s: %s", told->path, change_fate_name(told->fate),
				  told->reason);
		if (*told->beside && !f && !t->meddles)
			violation(t, "%s is not beside as told: %s", told->path, told->beside);
	}
}

/* NULL, or what was violated. */
static char *run_trial(uint64_t seed, bool meddles, bool kills, bool cached, bool verbose)
{
	struct trial *t = xcalloc(1, sizeof(*t));
	char *wrong;

	t->seed = seed;
	t->meddles = meddles;
	t->kills = kills;
	t->cached = cached;
	chance_seed(seed);
	memset(ledger, 0, sizeof(*ledger));
	ledger->next = 1000;
	files_open(&t->f, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	t->host.fd = t->f.host_fd;
	make_base(t);
	edit_both(t);
	fill_results(t);
	for (size_t i = 0; i < t->host.count; i++) {
		if (is_leaf(&t->host.nodes[i]) &&
		    !node_equal(&t->host.nodes[i], model_find(&t->base, t->host.nodes[i].path)))
			need(t->host.nodes[i].token);
	}
	apply_all(t);
	load_final(t);
	check_nothing_lost(t);
	check_told(t);
	if (!meddles)
		check_model(t);
	if (verbose) {
		for (size_t i = 0; i < t->told.count; i++)
			printf("  %-10s %-9s %s %s %s\n", change_kind_name(t->told.items[i].kind),
			       change_fate_name(t->told.items[i].fate), t->told.items[i].path,
			       t->told.items[i].beside, t->told.items[i].reason);
	}
	wrong = t->wrong;
	files_close(&t->f);
	free(t);
	return wrong;
}

/* What a seed is like is part of the seed. */
static char *run_seed(uint64_t seed, bool verbose)
{
	return run_trial(seed, seed % 3 == 1, seed % 2 == 1, seed % 16 == 2, verbose);
}

static void arm(const char *spec)
{
	struct error err = { 0 };

	must(fault_init(spec, &err), &err);
}

static void no_work_is_lost_whoever_edits_and_whatever_is_killed(void **state)
{
	const char *one = getenv("BERTH_SEED"), *many = getenv("BERTH_SEEDS");
	uint64_t from = one ? strtoull(one, NULL, 10) : 1;
	uint64_t to = one ? from + 1 : from + (many ? strtoull(many, NULL, 10) : SEEDS);

	(void)state;
	for (uint64_t seed = from; seed < to; seed++) {
		char *wrong = run_seed(seed, one != NULL);

		if (wrong)
			fail_msg("BERTH_SEED=%llu: %s", (unsigned long long)seed, wrong);
	}
}

static void without_exchange_nothing_is_lost_either(void **state)
{
	(void)state;
	arm("workspace.apply.probe:skip");
	for (uint64_t seed = 10001; seed < 10101; seed++) {
		char *wrong = run_seed(seed, false);

		if (wrong)
			fail_msg("seed %llu: %s", (unsigned long long)seed, wrong);
	}
	arm(NULL);
}

/* A test that cannot fail proves nothing: each mechanism is switched off once. */
static void expect_caught(const char *fence, bool meddles, bool cached)
{
	int caught = 0;

	arm(fence);
	for (uint64_t seed = 1; seed <= 60; seed++) {
		char *wrong = run_trial(seed, meddles, false, cached, false);

		caught += wrong != NULL;
		free(wrong);
	}
	arm(NULL);
	if (!caught)
		fail_msg("%s: no violation was found", fence);
}

static void a_hash_cache_without_ctime_is_caught(void **state)
{
	(void)state;
	expect_caught("workspace.cache.ctime:skip", false, true);
}

static void a_plain_rename_is_caught(void **state)
{
	(void)state;
	expect_caught("workspace.apply.exchange:skip", true, false);
}

static void a_place_that_always_wins_is_caught(void **state)
{
	(void)state;
	expect_caught("workspace.merge.base:skip", false, false);
}

static int make_ledger(void **state)
{
	(void)state;
	ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	return ledger == MAP_FAILED ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_work_is_lost_whoever_edits_and_whatever_is_killed),
		cmocka_unit_test(without_exchange_nothing_is_lost_either),
		cmocka_unit_test(a_hash_cache_without_ctime_is_caught),
		cmocka_unit_test(a_plain_rename_is_caught),
		cmocka_unit_test(a_place_that_always_wins_is_caught),
	};

	return cmocka_run_group_tests(tests, make_ledger, NULL);
}
