"""`bilm` as a worker process with several CPU replicas, which TensorFlow does not offer.

worker.py N COMMAND FLAGS...
"""

import sys

import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy as strategies

from bilm.commands.main import main

n_replicas = int(sys.argv.pop(1))
cpu = tf.config.list_physical_devices("CPU")[0]
one = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(cpu, [one] * n_replicas)


def local_devices(self, resolver, worker):
    return tuple(f"{worker}/device:CPU:{k}" for k in range(n_replicas)), "CPU"


strategies.CollectiveAllReduceExtended._initialize_local_devices = local_devices
main()
