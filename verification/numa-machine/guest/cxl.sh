#!/bin/sh
# Turns the emulated CXL device into a NUMA node: memory region, DAX device, hot-plugged memory.
# Fails if the node does not appear.
#
# By hand through sysfs, because the cxl tool of Debian 12 knows no regions of RAM.
for module in cxl_acpi cxl_pci cxl_port cxl_mem dax_cxl device_dax; do modprobe "$module"; done

cd /sys/bus/cxl/devices || exit 1
size=$(cat mem0/ram/size)
root=decoder0.0
for endpoint in decoder[2-9].0; do break; done

region=$(cat "$root/create_ram_region")
echo "$region" >"$root/create_ram_region"
echo 256 >"$region/interleave_granularity"
echo 1 >"$region/interleave_ways"
echo $((size)) >"$region/size"
echo ram >"$endpoint/mode"
echo 0 >"$endpoint/dpa_size"
echo $((size)) >"$endpoint/dpa_size"
echo "$endpoint" >"$region/target0"
echo 1 >"$region/commit"
echo "$region" >/sys/bus/cxl/drivers/cxl_region/bind

modprobe kmem
for device in /sys/bus/dax/devices/dax*; do
  name=$(basename "$device")
  if [ "$(basename "$(readlink "$device/driver")")" != kmem ]; then
    echo "$name" >"$device/driver/unbind"
    echo "$name" >/sys/bus/dax/drivers/kmem/new_id
  fi
done
# The kernel has it online by now; of its default zone see run.sh.
[ "$(cat /sys/devices/system/node/has_memory)" != "$(cat /sys/devices/system/node/has_cpu)" ]
