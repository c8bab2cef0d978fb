"""System calls by name: their numbers on x86_64 and aarch64, and which ones programs may make."""

from __future__ import annotations

import functools
import platform

#: The `AUDIT_ARCH_*` constants by which a seccomp filter knows the machine.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

#: Calls that programs may make with any arguments: memory, files, time, threads, signals to
#: themselves. Whatever is not listed here, or allowed for some arguments in `seccomp.py`, fails.
ALLOWED = """
read write close fstat stat lstat newfstatat statx lseek mmap mprotect munmap brk mremap msync
mincore madvise rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait
rt_sigsuspend sigaltstack signalfd4 pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2
access faccessat faccessat2 open openat creat pipe pipe2 select pselect6 poll ppoll epoll_create
epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 timerfd_create
timerfd_settime timerfd_gettime dup dup2 dup3 flock fsync fdatasync truncate ftruncate
fallocate fadvise64 readahead copy_file_range sendfile getdents getdents64 getcwd chdir fchdir
rename renameat renameat2 mkdir mkdirat rmdir link linkat unlink unlinkat symlink symlinkat
readlink readlinkat chmod fchmod fchmodat fchmodat2 umask utime utimes futimesat utimensat statfs
fstatfs pause nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
getitimer setitimer alarm timer_create timer_settime timer_gettime timer_getoverrun timer_delete
sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max
sched_get_priority_min getpriority getcpu getpid gettid getppid getpgrp getpgid getsid getuid
getgid geteuid getegid getresuid getresgid getgroups capget getrlimit getrusage sysinfo uname
exit exit_group wait4 waitid futex futex_waitv set_robust_list get_robust_list set_tid_address
rseq membarrier restart_syscall getrandom close_range recvfrom getsockopt setsockopt getsockname
getpeername shutdown
"""

#: The numbers of each call on x86_64 and aarch64, which lacks some (`-`).
NUMBERS = """
read:0:63 write:1:64 close:3:57 fstat:5:80 stat:4:- lstat:6:- newfstatat:262:79 statx:332:291
lseek:8:62 mmap:9:222 mprotect:10:226 munmap:11:215 brk:12:214 mremap:25:216 msync:26:227
mincore:27:232 madvise:28:233 rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139
rt_sigpending:127:136 rt_sigtimedwait:128:137 rt_sigsuspend:130:133 sigaltstack:131:132
signalfd4:289:74 pread64:17:67 pwrite64:18:68 readv:19:65 writev:20:66 preadv:295:69
pwritev:296:70 preadv2:327:286 pwritev2:328:287 access:21:- faccessat:269:48 faccessat2:439:439
open:2:- openat:257:56 creat:85:- pipe:22:- pipe2:293:59 select:23:- pselect6:270:72 poll:7:-
ppoll:271:73 epoll_create:213:- epoll_create1:291:20 epoll_ctl:233:21 epoll_wait:232:-
epoll_pwait:281:22 epoll_pwait2:441:441 eventfd:284:- eventfd2:290:19 timerfd_create:283:85
timerfd_settime:286:86 timerfd_gettime:287:87 dup:32:23 dup2:33:- dup3:292:24 fcntl:72:25
flock:73:32 fsync:74:82 fdatasync:75:83 truncate:76:45 ftruncate:77:46 fallocate:285:47
fadvise64:221:223 readahead:187:213 copy_file_range:326:285 sendfile:40:71 getdents:78:-
getdents64:217:61 getcwd:79:17 chdir:80:49 fchdir:81:50 rename:82:- renameat:264:38
renameat2:316:276 mkdir:83:- mkdirat:258:34 rmdir:84:- link:86:- linkat:265:37 unlink:87:-
unlinkat:263:35 symlink:88:- symlinkat:266:36 readlink:89:- readlinkat:267:78 chmod:90:-
fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 umask:95:166 utime:132:- utimes:235:-
futimesat:261:- utimensat:280:88 statfs:137:43 fstatfs:138:44 pause:34:- nanosleep:35:101
clock_nanosleep:230:115 clock_gettime:228:113 clock_getres:229:114 gettimeofday:96:169 time:201:-
times:100:153 getitimer:36:102 setitimer:38:103 alarm:37:- timer_create:222:107
timer_settime:223:110 timer_gettime:224:108 timer_getoverrun:225:109 timer_delete:226:111
sched_yield:24:124 sched_getaffinity:204:123 sched_getparam:143:121 sched_getscheduler:145:120
sched_get_priority_max:146:125 sched_get_priority_min:147:126 getpriority:140:141 getcpu:309:168
getpid:39:172 gettid:186:178 getppid:110:173 getpgrp:111:- getpgid:121:155 getsid:124:156
getuid:102:174 getgid:104:176 geteuid:107:175 getegid:108:177 getresuid:118:148 getresgid:120:150
getgroups:115:158 capget:125:90 getrlimit:97:163 getrusage:98:165 sysinfo:99:179 uname:63:160
exit:60:93 exit_group:231:94 wait4:61:260 waitid:247:95 futex:202:98 futex_waitv:449:449
set_robust_list:273:99 get_robust_list:274:100 set_tid_address:218:96 rseq:334:293
membarrier:324:283 restart_syscall:219:128 getrandom:318:278 close_range:436:436 recvfrom:45:207
getsockopt:55:209 setsockopt:54:208 getsockname:51:204 getpeername:52:205 shutdown:48:210
clone:56:220 clone3:435:435 kill:62:129 tgkill:234:131 prctl:157:167 prlimit64:302:261
ioctl:16:29 socketpair:53:199 sendto:44:206 unshare:272:97 setns:308:268
"""


@functools.cache
def numbers() -> dict[str, int]:
    """Returns the number of each call that this machine has, by name."""
    column = tuple(ARCHITECTURES).index(platform.machine())
    found = {}
    for entry in NUMBERS.split():
        name, *per_machine = entry.split(":")
        if per_machine[column] != "-":
            found[name] = int(per_machine[column])
    return found
