#include "git_fixture.h"
#include <pthread.h>
#include <signal.h>
#include "base/fault.h"
#include "base/id.h"

static void one_commit(struct git_fixture *f)
{
	SH(f->host, "echo 1 >a; echo 2 >b; echo 3 >c; echo '*.log' >.gitignore; git add .; "
		    "git commit -qm one");
}

static void WS_49_a_clean_round_trip_changes_nothing(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);

	_cleanup_free_ char *before =
		sh(f->host, "sha256sum .git/index .git/HEAD; git for-each-ref");

	stage(f);
	SH(f->place, "git status >/dev/null");
	come_home(f);
	assert_moved(f, false);
	assert_null(json_str(f->report, "ref"));
	assert_null(json_str(f->report, "reason"));
	assert_report(f, "index", "unchanged");
	assert_sh(f->host, "sha256sum .git/index .git/HEAD; git for-each-ref", before);
	assert_same_status(f);
}

/* Also on a host that has moved on meanwhile: nothing of the place has anything to say about that. */
static void a_place_that_left_its_repository_alone_brings_nothing(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	stage(f);
	SH(f->place, "echo x >>a");
	SH(f->host, "git pack-refs --all; echo y >>b; git commit -qam theirs");
	fetch(f);
	import(f);
	/* No git process worked on it: there was no quarantine. */
	assert_sh(f->host, "ls .git/berth 2>/dev/null || true", "");
	settle(f);
	assert_moved(f, false);
	assert_true(json_bool(f->report, "taken", false));
	assert_report(f, "head", json_str(f->about, "head"));
	assert_report(f, "branch", json_str(f->about, "headRef"));
	assert_report(f, "index", "unchanged");
	assert_null(json_str(f->report, "reason"));
	assert_null(json_str(f->report, "ref"));
	assert_sh(f->host, "git log --format=%s; git status --porcelain", "theirs\none");
}

/* What an earlier try left goes all the same, its lock of the index too. */
static void what_a_crash_left_goes_without_anything_to_import(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	stage(f);
	SH(f->host, "mkdir -p .git/berth/" RUN_ID "/git/place; : >.git/berth/" RUN_ID "/git/lock; "
		    "ln .git/berth/" RUN_ID "/git/lock .git/index.lock");
	come_home(f);
	assert_sh(f->host, "ls .git/index.lock .git/berth/*/git 2>/dev/null || true", "");
}

/* Spec 03, cases 68, 71 and 73: a commit and a dirty edit, no remote anywhere. */
static void WS_68_commits_and_edits_come_home(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	stage(f);
	SH(f->place, "echo x >>a; git commit -qam two; git mv b moved; chmod +x c; git add c; "
		     "git commit -qm three; echo dirty >>a; echo new >new; git add new; "
		     "echo more >>new; git rm -q --cached c; echo u >untracked; rm moved");
	come_home(f);
	assert_moved(f, true);
	assert_report(f, "index", "updated");
	assert_report(f, "ref", KEPT);
	assert_int_equal(json_int(f->report, "commits", 0), 2);
	assert_same_status(f);
	assert_sh(f->host,
		  "git log --format=%s; git rev-parse " KEPT " | diff - <(git rev-parse HEAD)",
		  "three\ntwo\none");
	assert_sh(f->host, "git reflog -1 --format=%gs", "berth: run " RUN_ID);
	assert_sh(f->host, "ls .git/index.lock .git/berth/*/git 2>/dev/null || true", "");
}

static void a_dirty_host_comes_home_as_it_went(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	SH(f->host, "echo 9 >>a; git add a; echo 8 >>a; git rm -q b; git mv c d; echo i >it; "
		    "git add -N it; echo u >$'odd\\nname'");
	stage(f);
	SH(f->place,
	   "git add .; git reset -q it; git add -N it; git commit -qm all -- a; echo s >s; "
	   "git add s");
	come_home(f);
	assert_moved(f, true);
	assert_same_status(f);
}

static void staging_alone_comes_home(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	stage(f);
	SH(f->place, "echo staged >s; git add s; echo then >s; git rm -q b; echo x >>a; git add a");
	come_home(f);
	assert_moved(f, false);
	assert_report(f, "index", "updated");
	assert_null(json_str(f->report, "ref"));
	assert_same_status(f);
	assert_sh(f->host, "git show :s", "staged");
}

static void an_unborn_branch_is_born(void **state)
{
	struct git_fixture *f = *state;

	SH(f->host, "echo 1 >a");
	stage(f);
	SH(f->place, "git add a; git commit -qm first; echo 2 >>a; git commit -qam second");
	come_home(f);
	assert_moved(f, true);
	assert_same_status(f);
	assert_sh(f->host, "git log --format=%s", "second\nfirst");
}

static void a_detached_head_moves_alone(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	SH(f->host, "git checkout -q --detach");
	stage(f);
	SH(f->place, "echo 2 >>a; git commit -qam two");
	come_home(f);
	assert_moved(f, true);
	assert_same_status(f);
	assert_sh(f->host, "git log -1 --format=%s main; git symbolic-ref -q HEAD || echo detached",
		  "one\ndetached");
}

static void a_linked_worktree_gets_its_commits(void **state)
{
	struct git_fixture *f = *state;

	SH(f->base,
	   "rm -rf host; git init -q main; cd main; echo 1 >a; git add a; git commit -qm one; "
	   "git worktree add -q -b work ../host; cd ../host; echo 2 >>a; git add a");
	stage(f);
	SH(f->place, "git commit -qm two; echo 3 >b; git add b");
	come_home(f);
	assert_moved(f, true);
	assert_same_status(f);
	assert_sh(f->host, "git -C ../main log --format=%s work; git -C ../main status --short",
		  "two\none");
}

static void borrowed_objects_and_sha256_come_home(void **state)
{
	struct git_fixture *f = *state;

	SH(f->base, "git init -q --object-format=sha256 lender; cd lender; echo l >l; git add l; "
		    "git commit -qm lent; cd ..; rm -rf host; git clone -q --shared lender host");
	stage(f);
	SH(f->place, "echo m >>l; git commit -qam more; git gc -q; echo n >n; git add n; "
		     "git commit -qm loose");
	come_home(f);
	assert_moved(f, true);
	assert_same_status(f);
}

static void a_merge_that_ended_in_the_place_is_over(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	SH(f->host, "git checkout -qb side; echo s >a; git commit -qam side; git checkout -q main; "
		    "echo m >a; git commit -qam main; git merge side >/dev/null || true");
	stage(f);
	SH(f->place, "echo both >a; git add a; git commit -qm merged");
	come_home(f);
	assert_moved(f, true);
	assert_same_status(f);
	assert_sh(f->host, "ls .git/MERGE_HEAD 2>/dev/null || echo over", "over");
	assert_sh(f->host, "git log -1 --format=%p | wc -w", "2");
}

static void a_pick_given_up_in_the_place_is_over(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	SH(f->host,
	   "git checkout -qb side; echo s >a; git commit -qam side; git checkout -q main; "
	   "echo m >a; git commit -qam main; git cherry-pick side >/dev/null 2>&1 || true");
	stage(f);
	SH(f->place, "git cherry-pick --quit");
	come_home(f);
	assert_same_status(f);
	assert_sh(f->host, "ls .git/CHERRY_PICK_HEAD 2>/dev/null || echo over", "over");
}

static void a_merge_begun_in_the_place_goes_on_at_home(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	SH(f->host, "git checkout -qb side; echo s >a; git commit -qam side; git checkout -q main; "
		    "echo m >a; git commit -qam main");
	stage(f);
	SH(f->place, "git merge side >/dev/null || true");
	come_home(f);
	assert_report(f, "index", "updated");
	assert_same_status(f);
	SH(f->host, "echo both >a; git add a; git commit -qm merged");
	assert_sh(f->host, "git log -1 --format=%p | wc -w", "2");
}

static void packed_repositories_come_home(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	SH(f->host, "git gc -q; git branch other");
	stage(f);
	SH(f->place, "echo 2 >>a; git commit -qam two; git branch -f other; git tag v1; "
		     "git gc -q --prune=now; git pack-refs --all");
	come_home(f);
	assert_moved(f, true);
	assert_same_status(f);
}

static void other_branches_tags_and_stashes_are_kept(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	stage(f);
	SH(f->place, "git checkout -q -b topic/x; echo t >t; git add t; git commit -qm topic; "
		     "git tag -am annotated v1; git checkout -q main; echo s >>a; git stash -q");
	come_home(f);
	assert_moved(f, false);
	assert_sh(f->host, "git log -1 --format=%s refs/berth-branches/" RUN_ID "/topic/x",
		  "topic");
	assert_sh(f->host, "git cat-file -t refs/berth-tags/" RUN_ID "/v1", "tag");
	assert_sh(f->host, "git show refs/berth-refs/" RUN_ID "/stash:a", "1\ns");
	assert_sh(f->host, "git branch --format='%(refname:short)'; git tag", "main");
	assert_int_equal(json_array_size(json_array_at(f->report, "kept")), 3);
	assert_clean_fsck(f);
	assert_ok(f, git_forget(f->host, RUN_ID, &f->err));
	assert_sh(f->host, "git for-each-ref --format='%(refname)'", "refs/heads/main");
	assert_sh(f->host, "ls -A .git/berth", "");
	assert_ok(f, git_forget(f->host, RUN_ID, &f->err));
}

static void WS_72_a_diverged_host_keeps_both(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	stage(f);
	SH(f->place, "echo place >>a; git commit -qam place");
	SH(f->host, "echo host >>b; git commit -qam host");
	_cleanup_free_ char *index = sh(f->host, "sha256sum .git/index");

	fetch(f);
	import(f);
	settle(f);
	assert_moved(f, false);
	assert_report(f, "reason", "was moved on the host");
	assert_report(f, "index", "left");
	assert_sh(f->host, "git log -1 --format=%s; git log -1 --format=%s " KEPT, "host\nplace");
	assert_sh(f->host, "sha256sum .git/index", index);
	assert_clean_fsck(f);
}

static void rewritten_commits_are_kept_beside(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	SH(f->host, "echo 2 >>a; git commit -qam two");
	stage(f);
	SH(f->place, "git commit -q --amend -m amended");
	come_home(f);
	assert_moved(f, false);
	assert_report(f, "reason", "no fast-forward");
	assert_sh(f->host, "git log -1 --format=%s; git log -1 --format=%s " KEPT, "two\namended");
	assert_clean_fsck(f);
}

static void an_amended_shallow_root_is_kept(void **state)
{
	struct git_fixture *f = *state;

	SH(f->base,
	   "rm -rf host; git init -q far; cd far; for i in 1 2 3; do echo $i >a; git add a; "
	   "git commit -qm $i; done; cd ..; git clone -q --depth 1 file://$PWD/far host");
	stage(f);
	SH(f->place, "git commit -q --amend -m amended; echo n >n; git add n; git commit -qm n");
	come_home(f);
	assert_moved(f, false);
	assert_sh(f->host, "git log --format=%s " KEPT, "n\namended");
	assert_clean_fsck(f);
}

static void another_branch_in_the_place_moves_nothing(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	SH(f->host, "git branch side");
	stage(f);
	SH(f->place, "git checkout -q side; echo 2 >>a; git commit -qam two");
	fetch(f);
	import(f);
	settle(f);
	assert_moved(f, false);
	assert_report(f, "reason", "another branch");
	assert_report(f, "ref", KEPT);
	assert_sh(f->host, "git log --format=%s side; git log -1 --format=%s " KEPT, "one\ntwo");
}

static void another_branch_on_the_host_moves_nothing(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	stage(f);
	SH(f->place, "echo 2 >>a; git commit -qam two");
	SH(f->host, "git checkout -qb elsewhere");
	fetch(f);
	import(f);
	settle(f);
	assert_moved(f, false);
	assert_report(f, "reason", "checked out on the host");
	assert_sh(f->host, "git log --format=%s main elsewhere", "one");
}

static void a_host_index_that_changed_stays(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	stage(f);
	SH(f->place, "echo 2 >>a; git commit -qam two; echo s >s; git add s");
	SH(f->host, "echo mine >mine; git add mine");
	fetch(f);
	import(f);
	SH(f->base, "cp place/a place/s host");
	settle(f);
	assert_moved(f, true);
	assert_report(f, "index", "left");
	assert_report(f, "reason", "index was changed");
	assert_sh(f->host, "git ls-files mine; git log -1 --format=%s", "mine\ntwo");
	assert_clean_fsck(f);
}

static void a_locked_index_stays(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	stage(f);
	SH(f->place, "echo s >s; git add s");
	SH(f->host, "echo not ours >.git/index.lock");
	come_home(f);
	assert_report(f, "index", "left");
	assert_report(f, "reason", "index.lock");
	assert_sh(f->host, "cat .git/index.lock", "not ours");
}

/* What a crash at any step leaves is finished by doing it all again. */
static void doing_it_again_finishes(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	stage(f);
	SH(f->place, "echo 2 >>a; git commit -qam two; echo s >s; git add s");
	fetch(f);
	import(f);
	import(f);
	apply_files(f);
	/* Killed while it held the lock. */
	SH(f->host,
	   "d=.git/berth/" RUN_ID "/git; mkdir -p $d; : >$d/lock; ln $d/lock .git/index.lock; "
	   "git update-ref refs/heads/main " KEPT);
	import(f);
	settle(f);
	assert_moved(f, true);
	assert_report(f, "index", "updated");
	settle(f);
	assert_report(f, "index", "updated");
	import(f);
	settle(f);
	assert_moved(f, true);
	assert_report(f, "index", "updated");
	assert_null(json_str(f->report, "reason"));
	assert_same_status(f);
}

/* In a child that is killed at the point. */
static void come_home_until(struct git_fixture *f, const char *point)
{
	_cleanup_free_ char *spec = xasprintf("%s:kill", point);
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		if (fault_init(spec, NULL) < 0)
			_exit(1);
		import(f);
		apply_files(f);
		settle(f);
		_exit(2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void a_kill_at_any_step_loses_nothing(void **state)
{
	static const char *const points[] = {
		"workspace.git.import.objects",
		"workspace.git.import.refs",
		"workspace.git.settle.branch",
		"workspace.git.settle.index",
	};
	struct git_fixture *f = *state;

	one_commit(f);
	stage(f);
	SH(f->place, "echo 2 >>a; git commit -qam two; git branch other; echo s >s; git add s");
	fetch(f);
	SH(f->base, "cp -a host host.before");
	for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
		SH(f->base, "rm -rf host; cp -a host.before host");
		come_home_until(f, points[i]);
		assert_clean_fsck(f);
		import(f);
		apply_files(f);
		settle(f);
		assert_moved(f, true);
		assert_report(f, "index", "updated");
		assert_same_status(f);
		assert_sh(f->host, "ls .git/index.lock 2>/dev/null || true", "");
	}
}

static void expect_guarded(struct git_fixture *f, enum git_care care, const char *change,
			   const char *word)
{
	const char *reason;

	f->care = care;
	SH(f->place, "%s", change);
	come_home(f);
	assert_moved(f, false);
	assert_report(f, "index", "left");
	reason = json_str(f->report, "reason");
	if (!reason || !strstr(reason, word))
		fail_msg("%s: %s", change, reason ? reason : "no reason");
}

static void guarded_stage(struct git_fixture *f)
{
	one_commit(f);
	SH(f->host, "echo secret >x.log; echo key >.env");
	stage(f);
	SH(f->place, "rm -f x.log .env");
}

static void commits_that_would_show_more_move_no_branch(void **state)
{
	struct git_fixture *f = *state;

	guarded_stage(f);
	expect_guarded(f, GIT_CARE_RULES, "echo '!x.log' >>.gitignore; git commit -qam wide",
		       "\".gitignore\" would show later runs");
	assert_report(f, "ref", KEPT);
	assert_sh(f->host, "git log --format=%s; git log -1 --format=%s " KEPT, "one\nwide");
}

static void an_index_that_would_show_more_stays_behind(void **state)
{
	struct git_fixture *f = *state;

	guarded_stage(f);
	expect_guarded(f, GIT_CARE_RULES, "mkdir sub; echo '!x' >sub/.berthignore; git add sub",
		       "\"sub/.berthignore\" would show later runs");
	assert_sh(f->host, "git ls-files", ".gitignore\na\nb\nc");
}

static void commits_do_not_make_a_hidden_file_tracked(void **state)
{
	struct git_fixture *f = *state;

	guarded_stage(f);
	expect_guarded(f, GIT_CARE_RULES, "echo mine >.env; git add -f .env; git commit -qm env",
		       "\".env\" is hidden from runs");
}

static void an_index_does_not_make_a_hidden_file_tracked(void **state)
{
	struct git_fixture *f = *state;

	guarded_stage(f);
	expect_guarded(f, GIT_CARE_RULES, "echo mine >x.log; git add -f x.log",
		       "\"x.log\" is hidden from runs");
}

static void what_is_tracked_already_stays_free_to_change(void **state)
{
	struct git_fixture *f = *state;

	f->care = GIT_CARE_ALL;
	SH(f->host,
	   "echo 1 >.env.example; echo '*.log' >.gitignore; git add .; git commit -qm one; "
	   "echo 2 >test.pem; git add test.pem");
	stage(f);
	SH(f->place, "echo 3 >>.env.example; echo 4 >>test.pem; echo '*.tmp' >>.gitignore; "
		     "git add -A; git commit -qm two");
	come_home(f);
	assert_moved(f, true);
	assert_same_status(f);
}

static void with_care_commits_that_run_by_themselves_move_no_branch(void **state)
{
	struct git_fixture *f = *state;

	guarded_stage(f);
	expect_guarded(
		f, GIT_CARE_ALL,
		"mkdir -p .github/workflows; echo x >.github/workflows/x.yml; git add .github; "
		"git commit -qm ci",
		"\".github/workflows/x.yml\" is run by a build server");
	f->care = GIT_CARE_RULES;
	settle(f);
	assert_moved(f, true);
}

static void with_care_a_committed_repository_moves_no_branch(void **state)
{
	struct git_fixture *f = *state;

	guarded_stage(f);
	expect_guarded(f, GIT_CARE_ALL,
		       "mkdir -p h/objects h/refs; touch h/objects/x h/refs/x; echo x >h/HEAD; "
		       "echo x >h/config; git add h; git commit -qm bare",
		       "\"h/HEAD\" is run by git");
}

static void the_first_commit_of_a_repository_is_judged_whole(void **state)
{
	struct git_fixture *f = *state;

	SH(f->host, "echo 1 >a");
	stage(f);
	expect_guarded(f, GIT_CARE_RULES, "echo k >x.key; git add -A; git commit -qm first",
		       "\"x.key\" is hidden from runs");
}

struct parallel {
	struct git_fixture *f;
	char run_id[ID_SIZE];
	json_t *report;
	int rc;
};

static void *import_one(void *arg)
{
	struct parallel *p = arg;
	_cleanup_close_ int root = root_of(p->f->host), fetched = root_of(p->f->fetched);

	p->rc = git_import(root, p->f->host, p->run_id, p->f->about, fetched, -1, NULL, &p->report,
			   NULL);
	if (p->rc == 0)
		p->rc = git_settle(root, p->f->host, p->run_id, p->f->about, fetched, GIT_CARE_ALL,
				   -1, NULL, p->report, NULL);
	return NULL;
}

/* Spec 03, case 69: several at once into one repository, more than may run git at a time. */
static void WS_69_runs_come_home_at_the_same_time(void **state)
{
	struct git_fixture *f = *state;
	struct parallel runs[6] = { 0 };
	pthread_t threads[ARRAY_SIZE(runs)];

	one_commit(f);
	stage(f);
	SH(f->place, "echo 2 >>a; git commit -qam two");
	fetch(f);
	for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
		runs[i].f = f;
		id_new(runs[i].run_id);
		assert_int_equal(pthread_create(&threads[i], NULL, import_one, &runs[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(runs[i].rc, 0);
		assert_true(json_bool(runs[i].report, "taken", false));
		SH(f->host, "git rev-parse -q --verify refs/berth/%s^{commit}", runs[i].run_id);
		json_decref(runs[i].report);
	}
	assert_sh(f->host, "git log -1 --format=%s; ls .git/index.lock 2>/dev/null || true", "two");
	assert_clean_fsck(f);
}

static void flags_that_hide_files_stay_the_hosts(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	SH(f->host,
	   "git update-index --skip-worktree b; rm b; git update-index --assume-unchanged c");
	stage(f);
	SH(f->place, "git update-index --assume-unchanged a; echo 2 >>a; echo n >n; git add n");
	come_home(f);
	assert_report(f, "index", "updated");
	assert_sh(f->host, "git ls-files -v", "H .gitignore\nH a\nS b\nh c\nH n");
	assert_sh(f->host, "git status --short", " M a\nA  n");
}

static void a_split_index_comes_home(void **state)
{
	struct git_fixture *f = *state;

	one_commit(f);
	SH(f->host, "git update-index --split-index");
	stage(f);
	SH(f->place, "echo 2 >>a; git add a; echo n >n; git add n; git rm -q b");
	come_home(f);
	assert_report(f, "index", "updated");
	assert_same_status(f);
}

/* As through an overlay: the place has the repository itself, loose refs and all. */
static void a_place_that_saw_the_repository_itself_comes_home(void **state)
{
	struct git_fixture *f = *state;
	_cleanup_close_ int root = root_of(f->host);
	enum git_kind kind;

	one_commit(f);
	SH(f->host, "git branch side; git branch gone; git tag v1");
	assert_ok(f, git_inspect(root, f->host, -1, NULL, &kind, &f->about, &f->err));
	SH(f->base, "rm -rf place; cp -a host place; mkdir staged; cp -a place/.git staged");
	SH(f->place,
	   "echo 2 >>a; git commit -qam two; git branch -q -D gone; git checkout -q side; "
	   "echo 3 >>b; git commit -qam three; git checkout -q main; git pack-refs --all");
	assert_sh(f->place, "ls .git/refs/heads", "");
	come_home(f);
	assert_moved(f, true);
	assert_same_status(f);
	assert_sh(f->host,
		  "git log -1 --format=%s refs/berth-branches/" RUN_ID "/side; "
		  "git log -1 --format=%s side; git log -1 --format=%s gone",
		  "three\none\none");
}

static void new_files_in_git_belong_to_the_repositorys_owner(void **state)
{
	struct git_fixture *f = *state;

	if (geteuid() != 0)
		skip();
	one_commit(f);
	SH(f->base, "chown -R 54321:54321 host");
	stage(f);
	SH(f->place, "echo 2 >>a; git commit -qam two; git branch more; echo 3 >n; git add n");
	fetch(f);
	chmod(f->fetched, 0700);
	import(f);
	apply_files(f);
	SH(f->base, "chown -R 54321:54321 host/[a-z]*");
	settle(f);
	assert_moved(f, true);
	assert_report(f, "index", "updated");
	assert_sh(f->host, "find .git ! -user 54321", "");
	assert_sh(f->base, "chown -R 0:0 host; cd host; git status --short", "A  n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		GIT_TEST(WS_49_a_clean_round_trip_changes_nothing),
		GIT_TEST(a_place_that_left_its_repository_alone_brings_nothing),
		GIT_TEST(what_a_crash_left_goes_without_anything_to_import),
		GIT_TEST(WS_68_commits_and_edits_come_home),
		GIT_TEST(a_dirty_host_comes_home_as_it_went),
		GIT_TEST(staging_alone_comes_home),
		GIT_TEST(an_unborn_branch_is_born),
		GIT_TEST(a_detached_head_moves_alone),
		GIT_TEST(a_linked_worktree_gets_its_commits),
		GIT_TEST(borrowed_objects_and_sha256_come_home),
		GIT_TEST(a_merge_that_ended_in_the_place_is_over),
		GIT_TEST(a_pick_given_up_in_the_place_is_over),
		GIT_TEST(a_merge_begun_in_the_place_goes_on_at_home),
		GIT_TEST(packed_repositories_come_home),
		GIT_TEST(other_branches_tags_and_stashes_are_kept),
		GIT_TEST(WS_72_a_diverged_host_keeps_both),
		GIT_TEST(rewritten_commits_are_kept_beside),
		GIT_TEST(an_amended_shallow_root_is_kept),
		GIT_TEST(another_branch_in_the_place_moves_nothing),
		GIT_TEST(another_branch_on_the_host_moves_nothing),
		GIT_TEST(a_host_index_that_changed_stays),
		GIT_TEST(a_locked_index_stays),
		GIT_TEST(doing_it_again_finishes),
		GIT_TEST(a_kill_at_any_step_loses_nothing),
		GIT_TEST(WS_69_runs_come_home_at_the_same_time),
		GIT_TEST(commits_that_would_show_more_move_no_branch),
		GIT_TEST(an_index_that_would_show_more_stays_behind),
		GIT_TEST(commits_do_not_make_a_hidden_file_tracked),
		GIT_TEST(an_index_does_not_make_a_hidden_file_tracked),
		GIT_TEST(what_is_tracked_already_stays_free_to_change),
		GIT_TEST(with_care_commits_that_run_by_themselves_move_no_branch),
		GIT_TEST(with_care_a_committed_repository_moves_no_branch),
		GIT_TEST(the_first_commit_of_a_repository_is_judged_whole),
		GIT_TEST(flags_that_hide_files_stay_the_hosts),
		GIT_TEST(a_split_index_comes_home),
		GIT_TEST(a_place_that_saw_the_repository_itself_comes_home),
		GIT_TEST(new_files_in_git_belong_to_the_repositorys_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
