/*
 * What a server that died leaves behind. Most of it is one test: a child process walks through
 * everything this room does and is killed at each point of the fault seam in turn; a new server
 * over the same data must find every object again, finish what was begun and hold what was held.
 */
#include "lease_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/spawn.h"
#include "base/text.h"

#define OPERATOR_LEASE "77777777-7777-4777-8777-777777777777"
#define RUN_A "11111111-1111-4111-8111-111111111111"
#define DAYS(n) ((n)*86400000LL)

SQL(RECOVER_ACTIVE, "SELECT COUNT(*) FROM leases WHERE status = 'active'");
SQL(RECOVER_HALF_DONE, "SELECT COUNT(*) FROM places WHERE state IN"
		       " ('resuming', 'releasing', 'cleanup')");
SQL(RECOVER_LIVE, "SELECT COUNT(*) FROM places WHERE driver = 'sandbox'"
		  " AND state IN ('held', 'free', 'retained')");
SQL(RECOVER_UNFINISHED, "SELECT COUNT(*) FROM leases WHERE status = 'pending_cleanup'");
SQL(RECOVER_INTENTS, "SELECT COUNT(*) FROM intents");
SQL(RECOVER_SHARED, "SELECT COUNT(*) FROM (SELECT place_id FROM leases WHERE status = 'active'"
		    " GROUP BY place_id HAVING COUNT(*) > 1) AS shared");
SQL(RECOVER_SET_BOOT, "UPDATE places SET boot_id = 'another-boot' WHERE id = $1");
SQL(RECOVER_DEAD_NODE, "INSERT INTO nodes (id, boot_epoch, boot_id, started_at, heartbeat_at)"
		       " VALUES ($1, 1, 'x', $2, $2)");
SQL(RECOVER_MOVE_PLACE, "UPDATE places SET node_id = $2 WHERE id = $1");
SQL(RECOVER_MOVE_LEASE, "UPDATE leases SET node_id = $2 WHERE id = $1");
SQL(RECOVER_ORPHAN_OWNER, "SELECT environment_id FROM places WHERE state = 'cleanup'"
			  " AND cleanup_reason = 'interrupted'");
SQL(RECOVER_HOLDER, "SELECT id FROM leases WHERE status = 'active'");
SQL(RECOVER_EPOCH, "SELECT epoch FROM places WHERE id = $1");

/* ---- the walk of the child ---- */

static int64_t acquire_one(struct yard *y, const struct environment *env, const char *lease_id,
			   int64_t ttl_ms, char id[ID_SIZE])
{
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_error_ struct error err = { 0 };
	struct lease_request request = yard_request(y, env);

	request.lease_id = lease_id;
	request.ttl_ms = ttl_ms;
	if (lease_acquire(y->leases, &request, &lease, NULL, &err) < 0) {
		id[0] = '\0';
		return -1;
	}
	id_copy(id, lease.id);
	return lease.generation;
}

static void release_one(struct yard *y, const char *id)
{
	struct lease_release release = { .generation = GENERATION_UNCHECKED,
					 .status = LEASE_FAILED,
					 .actor = &SOMEBODY };

	if (id[0])
		lease_release(y->leases, id, &release, NULL, NULL);
}

/* The point under test and some refusals beside it. */
static void arm_with(const char *fault, const char *refusals)
{
	_cleanup_free_ char *spec = xasprintf("%s%s%s", fault, fault[0] ? "," : "", refusals);

	fault_arm(spec);
}

struct estate {
	struct environment once, pool, changed, stale, bad, refusing;
};

static void open_estate(struct yard *y, struct estate *e)
{
	yard_sandbox(y, "once", FAKE, 0, &e->once);
	yard_sandbox(y, "pool", FAKE_REUSED, 0, &e->pool);
	yard_sandbox(y, "stale",
		     "{'provider':'fake','reuseLease':true,'faults':{'resume':{'fail':true}}}", 0,
		     &e->stale);
	yard_sandbox(y, "bad", "{'provider':'fake','faults':{'release':{'fail':2}}}", 0, &e->bad);
	yard_sandbox(y, "refusing", "{'provider':'fake','faults':{'acquire':{'fail':true}}}", 0,
		     &e->refusing);
	environment_copy(&e->changed, &e->pool);
	json_put_str(e->changed.config, "image", "other");
}

static void walk_through_reuse(struct yard *y, struct estate *e)
{
	_cleanup_json_ json_t *metadata = json_of("{'a':1}");
	char id[ID_SIZE];

	acquire_one(y, &e->pool, NULL, 0, id);
	clock_fake_advance(&y->r->fake, 2000);
	lease_use(y->leases, id, GENERATION_UNCHECKED, NULL, NULL, NULL);
	lease_renew(y->leases, id, GENERATION_UNCHECKED, 60000, NULL, NULL);
	yard_set_metadata(y, id, metadata);
	release_one(y, id);
	acquire_one(y, &e->pool, NULL, 0, id); /* resumed */
	release_one(y, id);
	acquire_one(y, &e->changed, NULL, 0, id); /* replaced */
	lease_destroy(y->leases, id, GENERATION_UNCHECKED, &SOMEBODY, NULL, NULL, NULL);
	acquire_one(y, &e->stale, NULL, 0, id);
	release_one(y, id);
	acquire_one(y, &e->stale, NULL, 0, id); /* planned anew */
	release_one(y, id);
}

static void walk_through_ends(struct yard *y, struct estate *e, const char *fault)
{
	static const enum lease_policy retain = POLICY_RETAIN_ON_FAILURE;
	struct lease_request request = yard_request(y, &e->once);
	_cleanup_lease_ struct lease kept = { 0 };
	char id[ID_SIZE];

	acquire_one(y, &e->refusing, NULL, 0, id);
	acquire_one(y, &e->bad, NULL, 0, id);
	release_one(y, id); /* queued */
	request.policy = &retain;
	request.retain_ms = 1000;
	if (lease_acquire(y->leases, &request, &kept, NULL, NULL) == 0)
		release_one(y, kept.id);
	acquire_one(y, &e->once, NULL, 1000, id); /* expires */
	clock_fake_advance(&y->r->fake, 5000);
	leases_sweep(y->leases, NULL);
	arm_with(fault, "db.lease.cleaned.before:error"); /* a claim that is given back */
	clock_fake_advance(&y->r->fake, 5000);
	leases_sweep(y->leases, NULL);
	fault_arm(fault);
	leases_sweep(y->leases, NULL);
}

/* What only a refusing database, a forgetful provider or a restart brings about. */
static void walk_through_trouble(struct yard *y, struct estate *e, const char *fault)
{
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_place_ struct place place = { 0 };
	struct place_grant unexplained = { 0 };
	struct place_request forgotten = { .environment = &e->once,
					   .config = { e->once.config },
					   .lease_id = "forgotten" };
	char id[ID_SIZE];

	arm_with(fault, "db.lease.grant.before:error,driver.destroy.before:error");
	acquire_one(y, &e->once, NULL, 0, id); /* an orphan */
	arm_with(fault, "db.lease.grant.before:error,driver.destroy.before:error,"
			"db.lease.orphan.before:error");
	acquire_one(y, &e->once, NULL, 0, id); /* spooled */
	arm_with(fault, "driver.acquire.before:error,db.lease.abandon.before:error");
	acquire_one(y, &e->once, NULL, 0, id); /* left to be settled */
	fault_arm(fault);
	acquire_one(y, &e->once, NULL, 0, id);
	arm_with(fault, "db.lease.released.before:error");
	release_one(y, id); /* interrupted */
	fault_arm(fault);
	acquire_one(y, &e->once, NULL, 0, id);
	if (lease_get(y->leases, id, &lease, &place, NULL) == 0)
		maker_destroy(&y->makers, &place, NULL); /* lost */
	if (maker_acquire(&y->makers, &forgotten, &unexplained, NULL) == 0)
		place_grant_clear(&unexplained);
	clock_fake_advance(&y->r->fake, 31000);
	leases_sweep(y->leases, NULL);
	leases_recover(y->leases, NULL);
	leases_prune(y->leases, &(struct leases_prune){ .before_ms = clock_now(y->r->clock) },
		     NULL);
}

/* It needs a relay, which the rest of the walk does not: only for its own points. */
static void walk_through_pause(struct yard *y, const char *id, const char *fault)
{
	if (!str_starts(fault, "db.lease.paus") && !str_starts(fault, "db.lease.resumed"))
		return;
	lease_pause(y->leases, id, GENERATION_UNCHECKED, true, &SOMEBODY, NULL);
	lease_pause(y->leases, id, GENERATION_UNCHECKED, false, &SOMEBODY, NULL);
}

/* Every path of the room once; failures are part of it. */
static void walk(struct yard *y, const char *fault)
{
	struct estate e = { 0 };
	char id[ID_SIZE];

	open_estate(y, &e);
	acquire_one(y, &e.once, OPERATOR_LEASE, DAYS(20), id);
	walk_through_pause(y, id, fault);
	walk_through_reuse(y, &e);
	walk_through_ends(y, &e, fault);
	walk_through_trouble(y, &e, fault);
	environment_clear(&e.once);
	environment_clear(&e.pool);
	environment_clear(&e.changed);
	environment_clear(&e.stale);
	environment_clear(&e.bad);
	environment_clear(&e.refusing);
}

/* ---- parent and child ---- */

/* Runs the walk in this program again, over the data in `dir`; 0 or the signal that ended it. */
static int walk_in_child(const char *dir, const char *fault)
{
	char *argv[] = { (char *)"/proc/self/exe", (char *)"walk", (char *)dir, (char *)fault,
			 NULL };
	char *envp[] = { (char *)"LC_ALL=C", NULL };
	struct spawn_spec spec = { .argv = argv,
				   .envp = envp,
				   .stdin_fd = -1,
				   .stdout_fd = STDOUT_FILENO,
				   .stderr_fd = STDERR_FILENO };
	_cleanup_error_ struct error err = { 0 };
	_cleanup_close_ int pidfd = -1;
	int status = 0;
	pid_t pid;

	if (spawn(&spec, &pid, &pidfd, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
		fail_msg("the child failed at %s", fault);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* The data of a yard whose server is not running. */
static void attach(struct yard *y, struct records *r, const char *dir)
{
	snprintf(r->dir, sizeof(r->dir), "%s", dir);
	assert_done(r, dir_open(AT_FDCWD, r->dir, &r->dirfd, &r->err));
	clock_init_fake(&r->fake, RECORDS_START_MS);
	r->clock = &r->fake.clock;
	r->path = xasprintf("%s/berth.db", dir);
	r->options.path = r->path;
	assert_done(r, db_open(&r->db, &r->options, &r->err));
	assert_done(r, company_get_by_name(r->db, "Acme", &r->company, &r->err));
	y->r = r;
	y->db = r->db;
	y->err = &r->err;
	clock_init_system(&y->system);
	y->providers_path = path_join(dir, "providers");
	y->home_path = xstrdup(dir);
	assert_done(r, dir_open(r->dirfd, "providers", &y->providers_fd, y->err));
	assert_done(r, dir_open(r->dirfd, "spool", &y->spool_fd, y->err));
}

static int run_child(const char *dir, const char *fault)
{
	static struct records r;
	static struct yard y;

	log_set_level(LOG_ERROR_);
	attach(&y, &r, dir);
	yard_start(&y);
	fault_arm(fault);
	walk(&y, fault);
	fault_disarm();
	return 0;
}

/* Everything that was begun has come to an end, and every object is somebody's. */
static void assert_settled(struct yard *y)
{
	assert_int_equal(records_number(y->r, &RECOVER_INTENTS), 0);
	assert_int_equal(records_number(y->r, &RECOVER_HALF_DONE), 0);
	assert_int_equal(records_number(y->r, &RECOVER_UNFINISHED), 0);
	assert_int_equal(records_number(y->r, &RECOVER_SHARED), 0);
	assert_int_equal(yard_inventory(y), records_number(y->r, &RECOVER_LIVE));
	assert_clean(y);
}

static bool is_active(struct yard *y, const char *id)
{
	_cleanup_lease_ struct lease lease = { 0 };

	return lease_get(y->leases, id, &lease, NULL, NULL) == 0 && lease.status == LEASE_ACTIVE;
}

/* Kills the walk at the point, if it comes by; 1 when it did. */
static int crash_and_recover(const char *fault)
{
	void *state;
	struct yard *y;
	bool held;
	int killed;

	yard_setup_sqlite(&state);
	y = state;
	yard_stop(y);
	killed = walk_in_child(y->r->dir, fault) == SIGKILL;
	/* The clock of the new server is ahead of the old one's. */
	clock_fake_advance(&y->r->fake, 100000);
	yard_start(y);
	assert_done(y->r, leases_recover(y->leases, y->err));
	assert_done(y->r, leases_recover(y->leases, y->err));
	held = is_active(y, OPERATOR_LEASE);
	for (int i = 0; i < 12; i++)
		yard_pass(y, 400000);
	assert_settled(y);
	/* What an operator held is still held, and can be used. */
	assert_int_equal(is_active(y, OPERATOR_LEASE), held);
	assert_int_equal(records_number(y->r, &RECOVER_ACTIVE), held);
	if (held) {
		_cleanup_lease_ struct lease lease = { 0 };

		assert_done(y->r, lease_pause(y->leases, OPERATOR_LEASE, GENERATION_UNCHECKED,
					      false, &SOMEBODY, y->err));
		assert_done(y->r, lease_get(y->leases, OPERATOR_LEASE, &lease, NULL, y->err));
		assert_done(y->r, yard_exec(y, &lease, "true", y->err));
		yard_release(y, &lease);
	}
	yard_pass(y, DAYS(2));
	yard_pass(y, 1000);
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
	yard_teardown(&state);
	return killed;
}

static bool is_of_this_room(const char *point)
{
	return str_starts(point, "db.lease.") ||
	       (str_starts(point, "driver.") && !strstr(point, "probe") &&
		!strstr(point, "realize") && !strstr(point, "start") && !strstr(point, "execute") &&
		!strstr(point, "begin"));
}

/*
 * In turn: killed after what was done, which nobody then heard of, and refused before it; with
 * BERTH_TEST_LONG both at both, and at later hits, as tests/fault/kill_loop.py does for the whole
 * program. Returns how many walks were killed.
 */
static int trouble_at_every_point(const char *action, int max_hits)
{
	bool thorough = getenv("BERTH_TEST_LONG") != NULL;
	int points = 0, crashes = 0;

	for (size_t i = 0; i < fault_count(); i++) {
		const char *point = fault_name(i);
		bool kills = streq(action, "kill"), killed;
		int hit = 0;

		if (!is_of_this_room(point) ||
		    (!thorough && !strstr(point, kills ? ".after" : ".before")))
			continue;
		points++;
		do {
			_cleanup_free_ char *fault =
				hit || kills ? xasprintf("%s@%d:%s", point, MAX_OF(hit, 1), action)
					     : xasprintf("%s:%s", point, action);

			killed = crash_and_recover(fault);
			crashes += killed;
			if (kills && hit == 0 && !killed)
				fail_msg("the walk never comes to %s", point);
			hit = hit || !kills ? hit + 1 : 2;
		} while (thorough && (killed || !kills) && hit <= max_hits);
	}
	print_message("%d points, %d crashes\n", points, crashes);
	assert_true(points > 25);
	return crashes;
}

static void a_server_killed_at_any_point_is_recovered(void **state)
{
	(void)state;
	assert_true(trouble_at_every_point("kill", 50) > 25);
}

/* Every time it comes by: whatever is refused once is refused again. */
static void an_error_at_any_point_is_recovered(void **state)
{
	(void)state;
	trouble_at_every_point("error", 4);
}

static void a_walk_without_a_fault_settles_too(void **state)
{
	(void)state;
	assert_int_equal(crash_and_recover(""), 0);
}

/* ---- single cases ---- */

static void an_operators_lease_outlives_the_server(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	yard_acquire_from(y, &env, &lease);
	yard_restart(y);
	yard_sweep(y);
	yard_reload(y, &lease);
	assert_int_equal(lease.status, LEASE_ACTIVE);
	assert_int_equal(records_number(y->r, &RECOVER_EPOCH, B_TEXT(lease.place_id)), 2);
	assert_done(y->r, yard_exec(y, &lease, "true", y->err));
	yard_release(y, &lease);
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
}

/* The server died between granting the lease and telling the run, which starts all over. */
static void a_run_that_was_never_told_does_not_wait_for_itself(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lost = { 0 }, again = { 0 };
	struct lease_request request;

	yard_sandbox(y, "pool", FAKE_REUSED, 1, &env);
	yard_run(y, RUN_A, "queued", 0);
	request = yard_request(y, &env);
	request.run_id = RUN_A;
	yard_acquire(y, &request, &lost);
	yard_sweep(y);
	assert_status(y, lost.id, "active");
	yard_restart(y);
	yard_sweep(y);
	yard_reload(y, &lost);
	assert_int_equal(lost.status, LEASE_FAILED);
	assert_string_equal(lost.failure_reason, "server_restarted");
	yard_acquire(y, &request, &again);
	assert_int_equal(again.generation, 2);
}

static void a_running_runs_lease_is_left_to_the_recovery_of_runs(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request = yard_request(y, &y->local);

	yard_run(y, RUN_A, "running", 0);
	request.run_id = RUN_A;
	yard_acquire(y, &request, &lease);
	yard_restart(y);
	yard_sweep(y);
	assert_status(y, lease.id, "active");
	/* Its relay may have the run's command: the place is open for taking it up. */
	assert_done(y->r, yard_exec(y, &lease, "true", y->err));
}

static void a_reboot_ends_what_ran_on_this_host(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease local = { 0 }, sandbox = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	yard_acquire_from(y, &y->local, &local);
	yard_acquire_from(y, &env, &sandbox);
	records_exec(y->r, &RECOVER_SET_BOOT, B_TEXT(local.place_id));
	records_exec(y->r, &RECOVER_SET_BOOT, B_TEXT(sandbox.place_id));
	yard_restart(y);
	yard_reload(y, &local);
	assert_int_equal(local.status, LEASE_FAILED);
	assert_string_equal(local.failure_reason, "host_rebooted");
	assert_place(y, local.place_id, "gone");
	/* Its files are on disk, whatever became of the processes. */
	assert_status(y, sandbox.id, "active");
}

static void an_intent_waits_for_a_provider_that_does_not_answer(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request;

	yard_sandbox(y, "box", FAKE, 0, &env);
	request = yard_request(y, &env);
	fault_arm("db.lease.grant.before:error,driver.destroy.before:error,"
		  "db.lease.orphan.before:error");
	assert_int_equal(lease_acquire(y->leases, &request, &lease, NULL, y->err), -1);
	fault_arm("driver.inventory.before:error,db.lease.unspool.before:error");
	yard_restart(y);
	assert_int_equal(records_number(y->r, &RECOVER_INTENTS), 1);
	assert_int_equal(yard_audit_count(y, "intent"), 1);
	fault_disarm();
	yard_pass(y, 1000);
	yard_pass(y, 1000);
	assert_settled(y);
	assert_int_equal(yard_inventory(y), 0);
}

static void what_an_intent_left_is_queued_under_its_environment(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	_cleanup_free_ char *owner = NULL;
	struct lease_request request;

	yard_sandbox(y, "box", FAKE, 0, &env);
	request = yard_request(y, &env);
	fault_arm("db.lease.grant.before:error,driver.destroy.before:error,"
		  "db.lease.orphan.before:error");
	assert_int_equal(lease_acquire(y->leases, &request, &lease, NULL, y->err), -1);
	/* The disk with the spool is gone: the intent still says it. */
	fault_arm("db.lease.unspool.before:error");
	yard_restart(y);
	owner = records_text(y->r, &RECOVER_ORPHAN_OWNER);
	assert_non_null(owner);
	assert_string_equal(owner, env.id);
	fault_disarm();
	yard_sweep(y);
	assert_settled(y);
	assert_int_equal(yard_inventory(y), 0);
}

static void a_release_that_was_interrupted_is_queued_at_start(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(y, &env, &lease);
	fault_arm("db.lease.released.before:error");
	yard_release(y, &lease);
	fault_disarm();
	assert_place(y, lease.place_id, "releasing");
	yard_restart(y);
	assert_place(y, lease.place_id, "cleanup");
	yard_sweep(y);
	assert_place(y, lease.place_id, "free");
	assert_status(y, lease.id, "released");
}

static void an_intent_that_nobody_can_settle_stays_visible(void **state)
{
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct maker *blind = maker_to_change(&y->makers, DRIVER_SANDBOX, "fake");
	struct lease_request request;

	blind->traits.lists = false;
	yard_sandbox(y, "box", FAKE, 0, &env);
	request = yard_request(y, &env);
	/* Nothing of the way back is written. */
	fault_arm("driver.acquire.before:error,db.lease.abandon.before:error");
	assert_int_equal(lease_acquire(y->leases, &request, &lease, NULL, y->err), -1);
	fault_disarm();
	assert_int_equal(yard_audit_count(y, "intent"), 1);
	yard_restart(y);
	yard_pass(y, 100000);
	yard_pass(y, 100000);
	assert_int_equal(yard_audit_count(y, "intent"), 1);
	assert_int_equal(records_number(y->r, &RECOVER_INTENTS), 1);
	blind->traits.lists = true;
}

static void the_work_of_a_dead_node_is_finished_by_another(void **state)
{
	static const char dead[] = "99999999-9999-4999-8999-999999999999";
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };
	struct lease_request request;

	yard_sandbox(y, "box", FAKE, 0, &env);
	request = yard_request(y, &env);
	request.ttl_ms = 1000;
	yard_acquire(y, &request, &lease);
	records_exec(y->r, &RECOVER_DEAD_NODE, B_TEXT(dead), B_INT(RECORDS_START_MS));
	records_exec(y->r, &RECOVER_MOVE_PLACE, B_TEXT(lease.place_id), B_TEXT(dead));
	records_exec(y->r, &RECOVER_MOVE_LEASE, B_TEXT(lease.id), B_TEXT(dead));
	/* Expired, but its node is alive and will see to it. */
	yard_pass(y, 50000);
	assert_status(y, lease.id, "active");
	assert_refused(y->r, ERR_LEASE_ENDED,
		       lease_use(y->leases, lease.id, lease.generation, NULL, NULL, y->err));
	yard_pass(y, 20000);
	assert_status(y, lease.id, "expired");
	assert_int_equal(yard_inventory(y), 0);
	assert_clean(y);
}

static void what_another_live_node_holds_is_queued_for_it(void **state)
{
	static const char other[] = "99999999-9999-4999-8999-999999999999";
	struct yard *y = yard_of(state);
	_cleanup_environment_ struct environment env = { 0 };
	_cleanup_lease_ struct lease lease = { 0 };

	yard_sandbox(y, "box", FAKE, 0, &env);
	yard_acquire_from(y, &env, &lease);
	records_exec(y->r, &RECOVER_DEAD_NODE, B_TEXT(other), B_INT(RECORDS_START_MS));
	records_exec(y->r, &RECOVER_MOVE_PLACE, B_TEXT(lease.place_id), B_TEXT(other));
	assert_refused(y->r, ERR_UNAVAILABLE, yard_exec(y, &lease, "true", y->err));
	yard_release(y, &lease);
	assert_int_equal(lease.status, LEASE_PENDING_CLEANUP);
	assert_place(y, lease.place_id, "cleanup");
	yard_sweep(y);
	assert_place(y, lease.place_id, "cleanup");
	assert_int_equal(yard_inventory(y), 1);
	/* Once that node is dead, ours does it. */
	yard_pass(y, 70000);
	assert_status(y, lease.id, "released");
	assert_int_equal(yard_inventory(y), 0);
}

/* ---- processes of an earlier server ---- */

static int run_stray_child(const char *dir)
{
	static struct records r;
	static struct yard y;
	struct lease lease = { 0 };
	struct environment env = { 0 };
	struct runlog *log;
	struct exec *exec;
	int logs;

	attach(&y, &r, dir);
	yard_start(&y);
	assert_done(&r, dir_open(r.dirfd, "logs", &logs, &r.err));
	assert_done(&r, runlog_store_open(logs, 0, &y.logs, &r.err));
	yard_sandbox(&y, "pool", FAKE_REUSED, 0, &env);
	yard_acquire_from(&y, &env, &lease);
	assert_done(&r, yard_exec_begin(&y, &lease, "exec sleep 600", &log, &exec, &r.err));
	printf("%d\n", (int)exec_pid(exec));
	fflush(stdout);
	kill(getpid(), SIGKILL);
	return 1;
}

struct holder {
	char lease_id[ID_SIZE];
};

static int find_holder(struct tx *tx, void *arg, struct error *err)
{
	struct holder *holder = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query(tx, &c, &RECOVER_HOLDER, err) < 0)
		return -1;
	if (cursor_next(&c, err) > 0)
		id_copy(holder->lease_id, col_text(&c, 0));
	return 0;
}

static void commands_of_an_operators_lease_go_on_until_it_is_released(void **state)
{
	struct yard *y = yard_of(state);
	char *argv[] = { (char *)"/proc/self/exe", (char *)"stray", y->r->dir, NULL };
	char *envp[] = { (char *)"LC_ALL=C", NULL };
	_cleanup_close_ int pidfd = -1;
	_cleanup_buf_ struct buf out = { 0 };
	int pipes[2];
	int64_t stray;
	pid_t pid;

	yard_stop(y);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);

	struct spawn_spec spec = { .argv = argv,
				   .envp = envp,
				   .stdin_fd = -1,
				   .stdout_fd = pipes[1],
				   .stderr_fd = STDERR_FILENO };

	assert_done(y->r, spawn(&spec, &pid, &pidfd, y->err));
	close(pipes[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_done(y->r, fd_read_all(pipes[0], &out, 100, y->err));
	close(pipes[0]);
	assert_true(out.len > 1);
	out.data[out.len - 1] = '\0';
	assert_true(parse_i64(out.data, 2, INT32_MAX, &stray));
	assert_true(process_start_time((pid_t)stray) > 0);

	struct holder holder = { 0 };
	struct lease_release release = { .generation = GENERATION_UNCHECKED,
					 .status = LEASE_RELEASED,
					 .actor = &ACTOR_SYSTEM };
	_cleanup_lease_ struct lease lease = { 0 };
	unsigned long long started = process_start_time((pid_t)stray);

	yard_start(y);
	assert_done(y->r, leases_recover(y->leases, y->err));
	assert_true(process_is((pid_t)stray, started));
	assert_int_equal(yard_audit_count(y, "process"), 0);
	assert_done(y->r, db_read(y->db, find_holder, &holder, y->err));
	assert_done(y->r, lease_release(y->leases, holder.lease_id, &release, &lease, y->err));
	assert_false(process_is((pid_t)stray, started));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_walk_without_a_fault_settles_too),
		cmocka_unit_test(a_server_killed_at_any_point_is_recovered),
		cmocka_unit_test(an_error_at_any_point_is_recovered),
		YARD_BOTH(an_operators_lease_outlives_the_server),
		YARD_BOTH(a_run_that_was_never_told_does_not_wait_for_itself),
		YARD(a_running_runs_lease_is_left_to_the_recovery_of_runs),
		YARD(a_reboot_ends_what_ran_on_this_host),
		YARD(an_intent_waits_for_a_provider_that_does_not_answer),
		YARD(what_an_intent_left_is_queued_under_its_environment),
		YARD(a_release_that_was_interrupted_is_queued_at_start),
		YARD(an_intent_that_nobody_can_settle_stays_visible),
		YARD_BOTH(the_work_of_a_dead_node_is_finished_by_another),
		YARD(what_another_live_node_holds_is_queued_for_it),
		YARD(commands_of_an_operators_lease_go_on_until_it_is_released),
	};

	if (argc == 4 && streq(argv[1], "walk"))
		return run_child(argv[2], argv[3]);
	if (argc == 3 && streq(argv[1], "stray"))
		return run_stray_child(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
