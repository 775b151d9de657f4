// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * UIO devices with a known hold time: the truth that the guests' tests compare uio-trace with.
 *
 * Each device's irqcontrol, which uio_write() calls under info_lock, stays busy for hold_us, sleeping or
 * spinning, and keeps its own count and its own sum of the time it took. It has an interrupt that comes every
 * interrupt_us, and 64 pages of memory to be mapped, which come in by page faults. Everything is per device and
 * can be set at run time, in /sys/devices/uio_testbedN/:
 *   hold_us     microseconds to stay in irqcontrol
 *   mode        "sleep" or "spin"
 *   spread      0: always hold_us; 1: exponentially distributed around it
 *   slow_us     microseconds that some calls stay instead: every slow_every-th (0: none), and those of thread slow_tid
 *   open_us     microseconds that open() stays under info_lock, asleep
 *   inner_us    microseconds (0: not at all) to hold, asleep and under info_lock, a mutex that all devices share
 *   inner_waits, inner_wait_ns  how often and how long that mutex was waited for
 *   interrupt_us  microseconds from one interrupt to the next (0: none)
 *   interrupts  how many came
 *   device_name what the device is called when it is registered the next time; any bytes
 *   fail_every  every k-th call fails with fail_errno (0: none)
 *   fail_errno  a positive errno
 *   calls       irqcontrol calls since the last reset
 *   failed      those that failed
 *   held_ns     nanoseconds spent in them
 *   arrival_ns  nanoseconds from the writer's own stamp to irqcontrol: what the write took to get the lock. The stamp is
 *               the written value: the low 32 bits of CLOCK_MONOTONIC just before the call (0 and 1 are no stamp)
 *   reset       write anything: zero the counts
 *   registered  0: unregister the device, 1: register it (again); the time that took is in register_ns
 * and in /sys/kernel/debug/uio_testbed/N the last calls' times as an array of u32 nanoseconds, in call order.
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/uio_driver.h>
#include <linux/vmalloc.h>

#define MAX_DEVICES 256
/* the first devices keep the times of their calls one by one */
#define SAMPLED_DEVICES 8
#define SAMPLES (1u << 17)
#define MEMORY (64 * PAGE_SIZE)

static unsigned int devices = 2;
module_param(devices, uint, 0444);
MODULE_PARM_DESC(devices, "number of UIO devices (1 to 256)");

struct testbed_device {
	struct uio_info info;
	struct device *parent;
	char name[16];
	char device_name[256];
	/* settings */
	unsigned int hold_us;
	bool spin;
	unsigned int spread;
	unsigned int slow_us;
	unsigned int slow_every;
	unsigned int slow_tid;
	unsigned int open_us;
	unsigned int inner_us;
	unsigned int interrupt_us;
	unsigned int fail_every;
	unsigned int fail_errno;
	/* written under info_lock only (or, where uio has no lock, by atomic operations) */
	atomic64_t calls;
	atomic64_t failed;
	atomic64_t held_ns;
	atomic64_t arrival_ns;
	atomic64_t inner_waits;
	atomic64_t inner_wait_ns;
	atomic64_t interrupts;
	u32 *samples;
	void *memory;
	struct task_struct *interrupter;
	struct mutex registering;
	bool registered;
	u64 register_ns;
	struct debugfs_blob_wrapper blob;
};

static struct testbed_device *table[MAX_DEVICES];
static struct dentry *debug_folder;

/* a lock of the driver's own, under info_lock */
static DEFINE_MUTEX(inner);

/* mean * -ln(u) for a random u in (0, 1]; the logarithm's fraction is taken as linear */
static unsigned int exponential(unsigned int mean)
{
	u32 u = get_random_u32() | 1;
	unsigned int whole = ilog2(u);
	u64 fraction = ((u64)u << (31 - whole) & 0x7fffffff) >> 15;
	u64 minus_log2 = (32ull << 16) - (((u64)whole << 16) + fraction);

	/* 45426 / 65536 = ln 2 */
	return (unsigned int)((((u64)mean * minus_log2 >> 8) * 45426) >> 24);
}

static unsigned int hold_time(struct testbed_device *testbed, u64 call)
{
	unsigned int every = READ_ONCE(testbed->slow_every);
	unsigned int us = READ_ONCE(testbed->hold_us);

	if ((every && call % every == 0) || READ_ONCE(testbed->slow_tid) == task_pid_nr(current))
		return READ_ONCE(testbed->slow_us);
	return READ_ONCE(testbed->spread) ? exponential(us) : us;
}

static void hold_inner(struct testbed_device *testbed)
{
	unsigned int us = READ_ONCE(testbed->inner_us);
	u64 start;

	if (!us)
		return;
	if (!mutex_trylock(&inner)) {
		start = ktime_get_ns();
		mutex_lock(&inner);
		atomic64_add(ktime_get_ns() - start, &testbed->inner_wait_ns);
		atomic64_inc(&testbed->inner_waits);
	}
	usleep_range(us, us);
	mutex_unlock(&inner);
}

static void hold(struct testbed_device *testbed, unsigned int us)
{
	if (!us)
		return;
	if (!READ_ONCE(testbed->spin)) {
		usleep_range(us, us);
		return;
	}
	/* udelay() is only good for small values */
	for (; us > 1000; us -= 1000)
		udelay(1000);
	udelay(us);
}

static int testbed_irqcontrol(struct uio_info *info, s32 irq_on)
{
	struct testbed_device *testbed = info->priv;
	u64 start = ktime_get_ns();
	u64 call = atomic64_inc_return(&testbed->calls);
	unsigned int every = READ_ONCE(testbed->fail_every);
	int result = 0;
	u64 took;

	if ((u32)irq_on > 1)
		atomic64_add((u32)start - (u32)irq_on, &testbed->arrival_ns);
	hold(testbed, hold_time(testbed, call));
	hold_inner(testbed);
	if (every && call % every == 0) {
		atomic64_inc(&testbed->failed);
		result = -(int)READ_ONCE(testbed->fail_errno);
	}
	took = ktime_get_ns() - start;
	atomic64_add(took, &testbed->held_ns);
	if (testbed->samples)
		testbed->samples[(call - 1) % SAMPLES] = (u32)min_t(u64, took, U32_MAX);
	return result;
}

/* called by uio_open() under info_lock */
static int testbed_open(struct uio_info *info, struct inode *inode)
{
	struct testbed_device *testbed = info->priv;
	unsigned int us = READ_ONCE(testbed->open_us);

	if (us)
		usleep_range(us, us);
	return 0;
}

static int interrupter(void *data)
{
	struct testbed_device *testbed = data;

	while (!kthread_should_stop()) {
		unsigned int us = READ_ONCE(testbed->interrupt_us);

		if (!us) {
			schedule_timeout_interruptible(HZ / 20);
			continue;
		}
		usleep_range(us, us);
		mutex_lock(&testbed->registering);
		if (testbed->registered) {
			/* counted first: whoever has seen it finds it counted */
			atomic64_inc(&testbed->interrupts);
			uio_event_notify(&testbed->info);
		}
		mutex_unlock(&testbed->registering);
	}
	return 0;
}

#define NUMBER(field)                                                                              \
	static ssize_t field##_show(struct device *dev, struct device_attribute *attr, char *buf)  \
	{                                                                                          \
		struct testbed_device *testbed = dev_get_drvdata(dev);                             \
		return sysfs_emit(buf, "%u\n", READ_ONCE(testbed->field));                         \
	}                                                                                          \
	static ssize_t field##_store(struct device *dev, struct device_attribute *attr,            \
				     const char *buf, size_t count)                                \
	{                                                                                          \
		struct testbed_device *testbed = dev_get_drvdata(dev);                             \
		unsigned int value;                                                                \
		int error = kstrtouint(buf, 0, &value);                                            \
		if (error)                                                                         \
			return error;                                                              \
		WRITE_ONCE(testbed->field, value);                                                 \
		return count;                                                                      \
	}                                                                                          \
	static DEVICE_ATTR_RW(field)

#define COUNTER(field)                                                                             \
	static ssize_t field##_show(struct device *dev, struct device_attribute *attr, char *buf)  \
	{                                                                                          \
		struct testbed_device *testbed = dev_get_drvdata(dev);                             \
		return sysfs_emit(buf, "%lld\n", (long long)atomic64_read(&testbed->field));       \
	}                                                                                          \
	static DEVICE_ATTR_RO(field)

NUMBER(hold_us);
NUMBER(spread);
NUMBER(slow_us);
NUMBER(slow_every);
NUMBER(slow_tid);
NUMBER(open_us);
NUMBER(inner_us);
NUMBER(interrupt_us);
NUMBER(fail_every);
NUMBER(fail_errno);
COUNTER(calls);
COUNTER(failed);
COUNTER(held_ns);
COUNTER(arrival_ns);
COUNTER(inner_waits);
COUNTER(inner_wait_ns);
COUNTER(interrupts);

static ssize_t mode_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct testbed_device *testbed = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%s\n", READ_ONCE(testbed->spin) ? "spin" : "sleep");
}

static ssize_t mode_store(struct device *dev, struct device_attribute *attr, const char *buf,
			  size_t count)
{
	struct testbed_device *testbed = dev_get_drvdata(dev);

	if (sysfs_streq(buf, "spin"))
		WRITE_ONCE(testbed->spin, true);
	else if (sysfs_streq(buf, "sleep"))
		WRITE_ONCE(testbed->spin, false);
	else
		return -EINVAL;
	return count;
}
static DEVICE_ATTR_RW(mode);

static ssize_t reset_store(struct device *dev, struct device_attribute *attr, const char *buf,
			   size_t count)
{
	struct testbed_device *testbed = dev_get_drvdata(dev);

	atomic64_set(&testbed->calls, 0);
	atomic64_set(&testbed->failed, 0);
	atomic64_set(&testbed->held_ns, 0);
	atomic64_set(&testbed->arrival_ns, 0);
	atomic64_set(&testbed->inner_waits, 0);
	atomic64_set(&testbed->inner_wait_ns, 0);
	atomic64_set(&testbed->interrupts, 0);
	return count;
}
static DEVICE_ATTR_WO(reset);

static ssize_t device_name_store(struct device *dev, struct device_attribute *attr, const char *buf,
				 size_t count)
{
	struct testbed_device *testbed = dev_get_drvdata(dev);

	if (!count || count >= sizeof(testbed->device_name))
		return -EINVAL;
	mutex_lock(&testbed->registering);
	if (!testbed->registered) {
		memcpy(testbed->device_name, buf, count);
		testbed->device_name[count] = 0;
	}
	mutex_unlock(&testbed->registering);
	return count;
}
static DEVICE_ATTR_WO(device_name);

static ssize_t registered_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct testbed_device *testbed = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%d\n", READ_ONCE(testbed->registered));
}

static ssize_t registered_store(struct device *dev, struct device_attribute *attr, const char *buf,
				size_t count)
{
	struct testbed_device *testbed = dev_get_drvdata(dev);
	bool wanted;
	u64 start;
	int error = kstrtobool(buf, &wanted);

	if (error)
		return error;
	mutex_lock(&testbed->registering);
	start = ktime_get_ns();
	if (wanted && !testbed->registered) {
		error = uio_register_device(testbed->parent, &testbed->info);
		testbed->registered = !error;
	} else if (!wanted && testbed->registered) {
		uio_unregister_device(&testbed->info);
		testbed->registered = false;
	}
	testbed->register_ns = ktime_get_ns() - start;
	mutex_unlock(&testbed->registering);
	return error ? error : count;
}
static DEVICE_ATTR_RW(registered);

static ssize_t register_ns_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct testbed_device *testbed = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%llu\n", (unsigned long long)READ_ONCE(testbed->register_ns));
}
static DEVICE_ATTR_RO(register_ns);

static struct attribute *testbed_attrs[] = {
	&dev_attr_hold_us.attr,	   &dev_attr_mode.attr,	   &dev_attr_fail_every.attr,
	&dev_attr_fail_errno.attr, &dev_attr_calls.attr,   &dev_attr_failed.attr,
	&dev_attr_held_ns.attr,	   &dev_attr_arrival_ns.attr, &dev_attr_reset.attr,
	&dev_attr_registered.attr, &dev_attr_register_ns.attr, &dev_attr_device_name.attr,
	&dev_attr_spread.attr,	   &dev_attr_slow_us.attr, &dev_attr_slow_every.attr,
	&dev_attr_slow_tid.attr,   &dev_attr_open_us.attr, &dev_attr_inner_us.attr,
	&dev_attr_inner_waits.attr, &dev_attr_inner_wait_ns.attr, &dev_attr_interrupt_us.attr,
	&dev_attr_interrupts.attr,
	NULL,
};
static const struct attribute_group testbed_group = { .attrs = testbed_attrs };

static void destroy(struct testbed_device *testbed)
{
	if (!IS_ERR_OR_NULL(testbed->parent)) {
		/* waits for those who write "registered" */
		sysfs_remove_group(&testbed->parent->kobj, &testbed_group);
		if (!IS_ERR_OR_NULL(testbed->interrupter))
			kthread_stop(testbed->interrupter);
		if (testbed->registered)
			uio_unregister_device(&testbed->info);
		root_device_unregister(testbed->parent);
	}
	vfree(testbed->samples);
	vfree(testbed->memory);
	kfree(testbed);
}

static struct testbed_device *create(unsigned int index)
{
	struct testbed_device *testbed = kzalloc(sizeof(*testbed), GFP_KERNEL);
	int error = -ENOMEM;

	if (!testbed)
		return ERR_PTR(-ENOMEM);
	if (index < SAMPLED_DEVICES) {
		testbed->samples = vzalloc(SAMPLES * sizeof(u32));
		testbed->memory = vmalloc_user(MEMORY);
		if (!testbed->samples || !testbed->memory)
			goto fail;
	}
	snprintf(testbed->name, sizeof(testbed->name), "uio_testbed%u", index);
	testbed->fail_errno = EIO;
	mutex_init(&testbed->registering);
	testbed->parent = root_device_register(testbed->name);
	if (IS_ERR(testbed->parent)) {
		error = PTR_ERR(testbed->parent);
		goto fail;
	}
	dev_set_drvdata(testbed->parent, testbed);
	error = sysfs_create_group(&testbed->parent->kobj, &testbed_group);
	if (error)
		goto fail;
	strscpy(testbed->device_name, testbed->name, sizeof(testbed->device_name));
	testbed->info.name = testbed->device_name;
	testbed->info.open = testbed_open;
	if (testbed->memory) {
		testbed->info.mem[0].name = "memory";
		testbed->info.mem[0].memtype = UIO_MEM_VIRTUAL;
		testbed->info.mem[0].addr = (phys_addr_t)(unsigned long)testbed->memory;
		testbed->info.mem[0].size = MEMORY;
	}
	testbed->info.version = "1";
	/* uio_write() refuses a device without an interrupt; "custom" is one that nobody requests */
	testbed->info.irq = UIO_IRQ_CUSTOM;
	testbed->info.irqcontrol = testbed_irqcontrol;
	testbed->info.priv = testbed;
	error = uio_register_device(testbed->parent, &testbed->info);
	if (error)
		goto fail;
	testbed->registered = true;
	if (!testbed->samples)
		return testbed;
	testbed->interrupter = kthread_run(interrupter, testbed, "uio_interrupt%u", index);
	if (IS_ERR(testbed->interrupter)) {
		error = PTR_ERR(testbed->interrupter);
		goto fail;
	}
	testbed->blob.data = testbed->samples;
	testbed->blob.size = SAMPLES * sizeof(u32);
	debugfs_create_blob(testbed->name + strlen("uio_testbed"), 0400, debug_folder, &testbed->blob);
	return testbed;
fail:
	destroy(testbed);
	return ERR_PTR(error);
}

static void testbed_exit(void)
{
	unsigned int index;

	debugfs_remove_recursive(debug_folder);
	for (index = 0; index < MAX_DEVICES; index++) {
		if (table[index])
			destroy(table[index]);
		table[index] = NULL;
	}
}

static int __init testbed_init(void)
{
	unsigned int index;

	if (devices < 1 || devices > MAX_DEVICES)
		return -EINVAL;
	debug_folder = debugfs_create_dir("uio_testbed", NULL);
	for (index = 0; index < devices; index++) {
		struct testbed_device *testbed = create(index);

		if (IS_ERR(testbed)) {
			testbed_exit();
			return PTR_ERR(testbed);
		}
		table[index] = testbed;
	}
	return 0;
}

module_init(testbed_init);
module_exit(testbed_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("UIO devices with a known hold time, for the tests of uio-trace");
