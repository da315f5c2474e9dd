/*
 * Every way out that is tried from inside, one line each: name, what it stands for, function. A
 * function returns true when it got through, and says how. Adding a line and a function is all.
 */
#define CASES(X)                                                                                   \
	X(dotdot, "up and up with ..", up_by_dots)                                                 \
	X(absolute, "host files by absolute path", by_absolute_path)                               \
	X(symlink, "host file through a symlink", through_symlink)                                 \
	X(dangling, "a dangling symlink that is created through (CVE-2024-45310)",                 \
	  through_dangling)                                                                        \
	X(hardlink, "hard link to a host file", by_hard_link)                                      \
	X(rename, "RENAME_EXCHANGE with a host directory", by_exchange)                            \
	X(proc_root, "/proc/*/root and /proc/*/cwd", by_proc_roots)                                \
	X(proc_fd, "descriptors of others in /proc/*/fd", by_proc_fds)                             \
	X(o_path, "O_PATH opened again for writing", by_path_descriptor)                           \
	X(relay_exe, "overwriting /proc/1/exe (CVE-2019-5736)", by_relay_image)                    \
	X(leaked_fd, "descriptors left open (CVE-2024-21626)", by_leaked_descriptor)               \
	X(cwd, "a working directory outside (CVE-2024-21626)", by_working_directory)               \
	X(handle, "open_by_handle_at on the host's root", by_file_handle)                          \
	X(device_node, "device nodes made inside", by_device_node)                                 \
	X(dev, "devices of the host in /dev (CVE-2025-52565, CVE-2026-41579)", by_devices)         \
	X(dev_null, "/dev/null that is something else (CVE-2025-31133)", by_fake_null)             \
	X(system, "changing the host's programs", by_system_files)                                 \
	X(setuid, "set-user-id programs", by_set_user_id)                                          \
	X(file_caps, "file capabilities and trusted xattrs", by_file_capabilities)                 \
	X(host_etc, "the host's /etc, shadow and keys", by_host_etc)                               \
	X(homes, "homes of the host", by_homes)                                                    \
	X(data_dir, "Berth's own data: keys, sockets, recipes (CVE-2025-24965)",                   \
	  by_data_directory)                                                                       \
	X(other_place, "files of another place", by_other_place)                                   \
	X(sysfs, "/sys, release_agent, uevent_helper (CVE-2022-0492)", by_sysfs)                   \
	X(proc_sys, "core_pattern, sysrq and friends (CVE-2019-16884, CVE-2025-52881)",            \
	  by_proc_sys)                                                                             \
	X(proc_masked, "kernel state in /proc (CVE-2019-19921)", by_proc_kernel)                   \
	X(mount, "mount, bind and move", by_mount)                                                 \
	X(mount_api, "fsopen, open_tree, mount_setattr", by_mount_api)                             \
	X(pivot, "pivot_root and chroot", by_new_root)                                             \
	X(userns, "a user namespace inside (CVE-2016-3135)", by_user_namespace)                    \
	X(clone, "clone and clone3 with namespace flags", by_clone)                                \
	X(setns, "joining namespaces by /proc/*/ns", by_setns)                                     \
	X(caps, "capabilities: held, inheritable, bounding (CVE-2022-27650, CVE-2020-5291)",       \
	  by_capabilities)                                                                         \
	X(new_privs, "privileges gained by exec", by_new_privileges)                               \
	X(identity, "another user than it should be (CVE-2026-30892)", by_identity)                \
	X(host_ids, "user ids that the host has", by_host_ids)                                     \
	X(ptrace, "tracing processes of the host", by_ptrace)                                      \
	X(kill, "signalling processes of the host", by_signal)                                     \
	X(processes, "seeing processes of the host", by_process_list)                              \
	X(relay_memory, "memory and descriptors of the relay", by_relay_memory)                    \
	X(relay_seen, "the relay in /proc", by_relay_listing)                                      \
	X(tiocsti, "typing into a terminal (CVE-2017-5226, CVE-2019-10063)", by_terminal)          \
	X(environment, "secrets in the environment", by_environment)                               \
	X(limits, "inherited umask, core dumps, signals", by_inherited_limits)                     \
	X(cgroup_view, "the host's cgroups", by_cgroup_view)                                       \
	X(i386, "the i386 ABI", by_i386)                                                           \
	X(x32, "the x32 ABI", by_x32)                                                              \
	X(io_uring, "io_uring", by_io_uring)                                                       \
	X(bpf, "bpf", by_bpf)                                                                      \
	X(keyring, "keyrings", by_keyring)                                                         \
	X(userfaultfd, "userfaultfd", by_userfaultfd)                                              \
	X(perf, "perf_event_open", by_perf)                                                        \
	X(modules, "kernel modules and kexec", by_modules)                                         \
	X(kernel_log, "the kernel's log", by_kernel_log)                                           \
	X(hostname, "name of the host", by_host_name)                                              \
	X(shared_memory, "SysV shared memory of the host", by_shared_memory)                       \
	X(loopback, "services on the host's loopback", by_host_loopback)                           \
	X(interfaces, "network interfaces of the host", by_interfaces)                             \
	X(shared_socket, "unix sockets in a mounted directory", by_shared_socket)                  \
	X(abstract, "abstract unix sockets of the host", by_abstract_socket)                       \
	X(path_socket, "unix sockets of the host by path", by_path_socket)                         \
	X(raw_sockets, "raw, packet, vsock and netlink sockets", by_odd_sockets)                   \
	X(netfilter, "netfilter tables (CVE-2016-3135)", by_netfilter)
