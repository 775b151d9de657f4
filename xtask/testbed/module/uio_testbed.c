// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * UIO devices with a known hold time: the truth that the guests' tests compare uio-trace with.
 *
 * Each device's irqcontrol, which uio_write() calls under info_lock, stays busy for hold_us, sleeping or
 * spinning, and keeps its own count and its own sum of the time it took. Everything is per device and can be
 * set at run time, in /sys/devices/uio_testbedN/:
 *   hold_us     microseconds to stay in irqcontrol
 *   mode        "sleep" or "spin"
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
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uio_driver.h>
#include <linux/vmalloc.h>

#define MAX_DEVICES 8
#define SAMPLES (1u << 17)

static unsigned int devices = 2;
module_param(devices, uint, 0444);
MODULE_PARM_DESC(devices, "number of UIO devices (1 to 8)");

struct testbed_device {
	struct uio_info info;
	struct device *parent;
	char name[16];
	/* settings */
	unsigned int hold_us;
	bool spin;
	unsigned int fail_every;
	unsigned int fail_errno;
	/* written under info_lock only (or, where uio has no lock, by atomic operations) */
	atomic64_t calls;
	atomic64_t failed;
	atomic64_t held_ns;
	atomic64_t arrival_ns;
	u32 *samples;
	struct mutex registering;
	bool registered;
	u64 register_ns;
	struct debugfs_blob_wrapper blob;
};

static struct testbed_device *table[MAX_DEVICES];
static struct dentry *debug_folder;

static void hold(struct testbed_device *testbed)
{
	unsigned int us = READ_ONCE(testbed->hold_us);

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
	hold(testbed);
	if (every && call % every == 0) {
		atomic64_inc(&testbed->failed);
		result = -(int)READ_ONCE(testbed->fail_errno);
	}
	took = ktime_get_ns() - start;
	atomic64_add(took, &testbed->held_ns);
	testbed->samples[(call - 1) % SAMPLES] = (u32)min_t(u64, took, U32_MAX);
	return result;
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
NUMBER(fail_every);
NUMBER(fail_errno);
COUNTER(calls);
COUNTER(failed);
COUNTER(held_ns);
COUNTER(arrival_ns);

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
	return count;
}
static DEVICE_ATTR_WO(reset);

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
	&dev_attr_registered.attr, &dev_attr_register_ns.attr,
	NULL,
};
static const struct attribute_group testbed_group = { .attrs = testbed_attrs };

static void destroy(struct testbed_device *testbed)
{
	if (!IS_ERR_OR_NULL(testbed->parent)) {
		/* waits for those who write "registered" */
		sysfs_remove_group(&testbed->parent->kobj, &testbed_group);
		if (testbed->registered)
			uio_unregister_device(&testbed->info);
		root_device_unregister(testbed->parent);
	}
	vfree(testbed->samples);
	kfree(testbed);
}

static struct testbed_device *create(unsigned int index)
{
	struct testbed_device *testbed = kzalloc(sizeof(*testbed), GFP_KERNEL);
	int error = -ENOMEM;

	if (!testbed)
		return ERR_PTR(-ENOMEM);
	testbed->samples = vzalloc(SAMPLES * sizeof(u32));
	if (!testbed->samples)
		goto fail;
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
	testbed->info.name = testbed->name;
	testbed->info.version = "1";
	/* uio_write() refuses a device without an interrupt; "custom" is one that nobody requests */
	testbed->info.irq = UIO_IRQ_CUSTOM;
	testbed->info.irqcontrol = testbed_irqcontrol;
	testbed->info.priv = testbed;
	error = uio_register_device(testbed->parent, &testbed->info);
	if (error)
		goto fail;
	testbed->registered = true;
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
