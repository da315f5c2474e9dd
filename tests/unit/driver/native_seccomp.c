/*
 * The two parts of the filter against the whole, call by call, as the kernel would judge: of
 * several filters the strictest verdict counts, and the youngest's among equals.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <cmocka.h>
#include "driver/native/native_seccomp.h"

#define CALLS 600u
#define X32_BIT 0x40000000u

/* What libseccomp makes of our rules needs no more of the language than this. */
static uint32_t judge(const struct seccomp_program *program, const struct seccomp_data *data)
{
	const struct sock_filter *code = program->data;
	size_t count = program->len / sizeof(*code), pc = 0;
	uint32_t a = 0;

	while (pc < count) {
		const struct sock_filter *i = &code[pc++];
		bool jump;

		switch (i->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			assert_true(i->k <= sizeof(*data) - 4);
			memcpy(&a, (const char *)data + i->k, 4);
			continue;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= i->k;
			continue;
		case BPF_RET | BPF_K:
			return i->k;
		case BPF_JMP | BPF_JA:
			pc += i->k;
			continue;
		case BPF_JMP | BPF_JEQ | BPF_K:
			jump = a == i->k;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			jump = a > i->k;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			jump = a >= i->k;
			break;
		default:
			fail_msg("instruction %x", i->code);
			return 0;
		}
		pc += jump ? i->jt : i->jf;
	}
	fail_msg("the program has no end");
	return 0;
}

static uint32_t judge_parts(const struct seccomp_filter *f, const struct seccomp_data *data)
{
	uint32_t young = judge(&f->exec, data), old = judge(&f->base, data);

	return (int32_t)(old & SECCOMP_RET_ACTION_FULL) < (int32_t)(young & SECCOMP_RET_ACTION_FULL)
		       ? old
		       : young;
}

/* Everything that some rule looks at, and its neighbours. */
static const uint64_t ARGUMENTS[] = {
	0,          1,         2,          3,          9,          10,
	16,         17,        40,         63,         64,         0x80,
	0x400,      0x5401,    0x5412,     0x541c,     0x5423,     0xffffffff00005412,
	0xffffffff, ~0ull,     00644,      02755,      04755,      0010666,
	0020666,    0060666,   0100666,    0x3d0f00,   0x20000,    0x2000000,
	0x4000000,  0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x10000011
};
#define ARGUMENT_COUNT (sizeof(ARGUMENTS) / sizeof(ARGUMENTS[0]))

static void compare(const struct seccomp_filter *f, struct seccomp_data *data, unsigned *refused)
{
	uint32_t whole = judge(&f->whole, data), parts = judge_parts(f, data);

	if (whole != parts)
		fail_msg("call %d (%llx, %llx, %llx, %llx) of %x: %x in parts, %x as a whole",
			 data->nr, (unsigned long long)data->args[0],
			 (unsigned long long)data->args[1], (unsigned long long)data->args[2],
			 (unsigned long long)data->args[3], data->arch, parts, whole);
	*refused += whole != SECCOMP_RET_ALLOW;
}

static void compare_call(const struct seccomp_filter *f, uint32_t arch, uint32_t number,
			 unsigned *refused)
{
	for (unsigned position = 0; position < 4; position++) {
		for (size_t i = 0; i < ARGUMENT_COUNT; i++) {
			struct seccomp_data data = { .nr = (int)number, .arch = arch };

			data.args[position] = ARGUMENTS[i];
			compare(f, &data, refused);
			/* Of netlink the protocol counts too. */
			data.args[0] = 16;
			compare(f, &data, refused);
		}
	}
}

static void parts_refuse_what_the_whole_refuses(void **state)
{
	static const uint32_t arches[] = { AUDIT_ARCH_X86_64, AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64,
					   0 };

	(void)state;
	for (enum seccomp_kind kind = 0; kind < SECCOMP_KINDS; kind++) {
		struct seccomp_filter f;
		unsigned refused = 0;

		assert_int_equal(seccomp_compile(kind, &f, NULL), 0);
		for (size_t a = 0; a < sizeof(arches) / sizeof(arches[0]); a++) {
			for (uint32_t n = 0; n < CALLS; n++) {
				compare_call(&f, arches[a], n, &refused);
				compare_call(&f, arches[a], n | X32_BIT, &refused);
			}
			compare_call(&f, arches[a], ~0u, &refused);
		}
		assert_true(refused > 1000);
		seccomp_filter_clear(&f);
	}
}

static uint32_t native_arch(void)
{
#if defined(__x86_64__)
	return AUDIT_ARCH_X86_64;
#else
	return AUDIT_ARCH_AARCH64;
#endif
}

static void the_relay_keeps_what_it_needs(void **state)
{
	static const int calls[] = { SYS_clone3, SYS_openat2, SYS_seccomp, SYS_execve,
				     SYS_setresuid };
	struct seccomp_filter f;

	(void)state;
	assert_int_equal(seccomp_compile(SECCOMP_SHARED, &f, NULL), 0);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct seccomp_data data = { .nr = calls[i], .arch = native_arch() };

		assert_int_equal(judge(&f.base, &data), SECCOMP_RET_ALLOW);
	}

	struct seccomp_data clone3 = { .nr = SYS_clone3, .arch = native_arch() };
	struct seccomp_data chmod = { .nr = SYS_fchmod,
				      .arch = native_arch(),
				      .args = { 3, 04755 } };

	assert_int_equal(judge(&f.exec, &clone3), SECCOMP_RET_ERRNO | ENOSYS);
	assert_int_equal(judge(&f.base, &chmod), SECCOMP_RET_ALLOW);
	assert_int_equal(judge(&f.exec, &chmod), SECCOMP_RET_ERRNO | EPERM);
	seccomp_filter_clear(&f);
}

/* What every command pays for. */
static void the_part_of_an_exec_is_small(void **state)
{
	struct seccomp_filter f;

	(void)state;
	assert_int_equal(seccomp_compile(SECCOMP_PLAIN, &f, NULL), 0);
	assert_true(f.exec.len > 0 && f.exec.len <= 16 * sizeof(struct sock_filter));
	assert_true(f.base.len > 0 && f.base.len < 16384);
	seccomp_filter_clear(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_refuse_what_the_whole_refuses),
		cmocka_unit_test(the_relay_keeps_what_it_needs),
		cmocka_unit_test(the_part_of_an_exec_is_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
