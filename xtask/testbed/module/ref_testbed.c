// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * percpu_refs whose every moment is known: the truth that the guests' tests compare uio-trace with.
 *
 * Commands are written to /sys/devices/ref_testbed/command, SLOT is 0 to 7:
 *   init SLOT           a live ref in per-CPU mode
 *   hold SLOT COUNT     take references, each on the next online CPU
 *   drop SLOT           give them all back
 *   kill SLOT           percpu_ref_kill
 *   confirm SLOT MS     percpu_ref_kill_and_confirm; MS after the confirmation all held references are given back
 *   twice SLOT          kill twice, which is a bug: the kernel warns
 *   resurrect SLOT      percpu_ref_resurrect
 *   reinit SLOT         percpu_ref_reinit, once it is released
 *   atomic SLOT         percpu_ref_switch_to_atomic_sync
 *   percpu SLOT         percpu_ref_switch_to_percpu
 *   free SLOT           give back and kill what is left, wait for the release, percpu_ref_exit
 *
 * /sys/devices/ref_testbed/state has a line for each slot with a ref, times on CLOCK_MONOTONIC in nanoseconds, 0 for "not
 * yet":  SLOT held=N kills=N kill_ns=N confirm_ns=N release_ns=N revive_ns=N
 *
 * A number of calls written to /sys/devices/ref_testbed/exit_aio makes the kernel's exit_aio() be called so often for the
 * writer's own mm, which must have no AIO context; read, it says how many nanoseconds they took. It is all that runs of
 * the tool when a process without AIO exits, without the rest of an exit, which costs hundreds of times as much.
 *
 * A number written to /sys/devices/ref_testbed/kill has a ref killed and made live again so often; read, it says how many
 * nanoseconds the calls of percpu_ref_kill() took, without their grace periods.
 */
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/device.h>
#include <linux/kprobes.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/percpu-refcount.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/workqueue.h>

#define SLOTS 8

struct slot {
	struct percpu_ref ref;
	struct completion released;
	struct delayed_work give_back;
	bool used;
	unsigned int held;
	unsigned int after_ms;
	unsigned int kills;
	u64 kill_ns, confirm_ns, release_ns, revive_ns;
};

static struct slot slots[SLOTS];
static struct device *parent;
/* one command at a time */
static DEFINE_MUTEX(lock);

static void ref_testbed_release(struct percpu_ref *ref)
{
	struct slot *slot = container_of(ref, struct slot, ref);

	WRITE_ONCE(slot->release_ns, ktime_get_ns());
	complete_all(&slot->released);
}

static void ref_testbed_confirm(struct percpu_ref *ref)
{
	struct slot *slot = container_of(ref, struct slot, ref);

	WRITE_ONCE(slot->confirm_ns, ktime_get_ns());
	schedule_delayed_work(&slot->give_back, msecs_to_jiffies(slot->after_ms));
}

static void drop(struct slot *slot)
{
	for (; slot->held; slot->held--)
		percpu_ref_put(&slot->ref);
}

static void give_back(struct work_struct *work)
{
	drop(container_of(to_delayed_work(work), struct slot, give_back));
}

static void take_one(void *data)
{
	struct slot *slot = data;

	percpu_ref_get(&slot->ref);
}

static void hold(struct slot *slot, unsigned int count)
{
	int cpu = -1;

	for (; count; count--) {
		cpu = cpumask_next(cpu, cpu_online_mask);
		if (cpu >= nr_cpu_ids)
			cpu = cpumask_first(cpu_online_mask);
		smp_call_function_single(cpu, take_one, slot, 1);
		slot->held++;
	}
}

static void killed(struct slot *slot)
{
	slot->kills++;
	slot->confirm_ns = 0;
	slot->release_ns = 0;
	slot->kill_ns = ktime_get_ns();
}

static int init_slot(struct slot *slot)
{
	int error;

	if (slot->used)
		return -EBUSY;
	error = percpu_ref_init(&slot->ref, ref_testbed_release, PERCPU_REF_ALLOW_REINIT, GFP_KERNEL);
	if (error)
		return error;
	init_completion(&slot->released);
	INIT_DELAYED_WORK(&slot->give_back, give_back);
	slot->held = slot->kills = 0;
	slot->kill_ns = slot->confirm_ns = slot->release_ns = slot->revive_ns = 0;
	slot->used = true;
	return 0;
}

static void free_slot(struct slot *slot)
{
	if (!slot->used)
		return;
	if (!percpu_ref_is_dying(&slot->ref)) {
		killed(slot);
		percpu_ref_kill(&slot->ref);
	}
	flush_delayed_work(&slot->give_back);
	drop(slot);
	wait_for_completion(&slot->released);
	/* a confirmation may have queued it after the flush */
	cancel_delayed_work_sync(&slot->give_back);
	percpu_ref_exit(&slot->ref);
	slot->used = false;
}

static int command(const char *name, struct slot *slot, unsigned int number)
{
	if (!strcmp(name, "init"))
		return init_slot(slot);
	if (!slot->used)
		return -ENOENT;
	if (!strcmp(name, "hold")) {
		hold(slot, number);
	} else if (!strcmp(name, "drop")) {
		drop(slot);
	} else if (!strcmp(name, "kill")) {
		killed(slot);
		percpu_ref_kill(&slot->ref);
	} else if (!strcmp(name, "confirm")) {
		slot->after_ms = number;
		killed(slot);
		percpu_ref_kill_and_confirm(&slot->ref, ref_testbed_confirm);
	} else if (!strcmp(name, "twice")) {
		/* the second kill gives back a reference of its own */
		percpu_ref_get(&slot->ref);
		killed(slot);
		percpu_ref_kill(&slot->ref);
		slot->kills++;
		percpu_ref_kill(&slot->ref);
	} else if (!strcmp(name, "resurrect")) {
		percpu_ref_resurrect(&slot->ref);
		slot->revive_ns = ktime_get_ns();
		reinit_completion(&slot->released);
	} else if (!strcmp(name, "reinit")) {
		wait_for_completion(&slot->released);
		percpu_ref_reinit(&slot->ref);
		slot->revive_ns = ktime_get_ns();
		reinit_completion(&slot->released);
	} else if (!strcmp(name, "atomic")) {
		percpu_ref_switch_to_atomic_sync(&slot->ref);
	} else if (!strcmp(name, "percpu")) {
		percpu_ref_switch_to_percpu(&slot->ref);
	} else if (!strcmp(name, "free")) {
		free_slot(slot);
	} else {
		return -EINVAL;
	}
	return 0;
}

static ssize_t command_store(struct device *dev, struct device_attribute *attr, const char *buf,
			     size_t count)
{
	unsigned int index, number = 0;
	char name[16];
	int error;

	if (sscanf(buf, "%15s %u %u", name, &index, &number) < 2 || index >= SLOTS)
		return -EINVAL;
	mutex_lock(&lock);
	error = command(name, &slots[index], number);
	mutex_unlock(&lock);
	return error ? error : count;
}
static DEVICE_ATTR_WO(command);

static ssize_t state_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	unsigned int index;
	ssize_t length = 0;

	for (index = 0; index < SLOTS; index++) {
		struct slot *slot = &slots[index];

		if (!slot->used)
			continue;
		length += sysfs_emit_at(buf, length,
					"%u held=%u kills=%u kill_ns=%llu confirm_ns=%llu release_ns=%llu revive_ns=%llu\n",
					index, READ_ONCE(slot->held), slot->kills, slot->kill_ns,
					READ_ONCE(slot->confirm_ns), READ_ONCE(slot->release_ns),
					slot->revive_ns);
	}
	return length;
}
static DEVICE_ATTR_RO(state);

/* exit_aio() is not exported: registering a probe on a function tells its address */
static void *address_of(const char *name)
{
	struct kprobe probe = { .symbol_name = name };
	void *address;

	if (register_kprobe(&probe))
		return NULL;
	address = probe.addr;
	unregister_kprobe(&probe);
	return address;
}

static u64 exit_aio_ns;

static ssize_t exit_aio_store(struct device *dev, struct device_attribute *attr, const char *buf,
			      size_t count)
{
	void (*exit_aio_call)(struct mm_struct *mm);
	unsigned int calls;
	u64 start;
	int error = kstrtouint(buf, 0, &calls);

	if (error)
		return error;
	if (!current->mm || rcu_access_pointer(current->mm->ioctx_table))
		return -EBUSY;
	exit_aio_call = address_of("exit_aio");
	if (!exit_aio_call)
		return -ENOENT;
	start = ktime_get_ns();
	while (calls--)
		exit_aio_call(current->mm);
	exit_aio_ns = ktime_get_ns() - start;
	return count;
}

static ssize_t exit_aio_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", exit_aio_ns);
}
static DEVICE_ATTR_RW(exit_aio);

static u64 kill_ns;

static void timed_release(struct percpu_ref *ref)
{
	complete(&container_of(ref, struct slot, ref)->released);
}

static ssize_t kill_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t count)
{
	struct slot *slot;
	unsigned int calls;
	u64 sum = 0;
	int error = kstrtouint(buf, 0, &calls);

	if (error)
		return error;
	slot = kzalloc(sizeof(*slot), GFP_KERNEL);
	if (!slot)
		return -ENOMEM;
	init_completion(&slot->released);
	error = percpu_ref_init(&slot->ref, timed_release, PERCPU_REF_ALLOW_REINIT, GFP_KERNEL);
	if (error)
		goto out;
	while (calls--) {
		u64 start = ktime_get_ns();

		percpu_ref_kill(&slot->ref);
		sum += ktime_get_ns() - start;
		wait_for_completion(&slot->released);
		if (calls)
			percpu_ref_reinit(&slot->ref);
	}
	percpu_ref_exit(&slot->ref);
	kill_ns = sum;
out:
	kfree(slot);
	return error ? error : count;
}

static ssize_t kill_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", kill_ns);
}
static DEVICE_ATTR_RW(kill);

static struct attribute *attrs[] = { &dev_attr_command.attr, &dev_attr_state.attr,
				     &dev_attr_exit_aio.attr, &dev_attr_kill.attr, NULL };
static const struct attribute_group group = { .attrs = attrs };

static int __init ref_testbed_init(void)
{
	int error;

	parent = root_device_register("ref_testbed");
	if (IS_ERR(parent))
		return PTR_ERR(parent);
	error = sysfs_create_group(&parent->kobj, &group);
	if (error)
		root_device_unregister(parent);
	return error;
}

static void __exit ref_testbed_exit(void)
{
	unsigned int index;

	sysfs_remove_group(&parent->kobj, &group);
	for (index = 0; index < SLOTS; index++)
		free_slot(&slots[index]);
	root_device_unregister(parent);
}

module_init(ref_testbed_init);
module_exit(ref_testbed_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("percpu_refs with known times, for the tests of uio-trace");
