import sys; sys.path.insert(0,"."); sys.path.insert(0,"src")
import importlib, time, traceback
m=importlib.import_module("tests.tidy.test_house_rules")
for n in sys.argv[1:]:
    t=time.process_time()
    try: getattr(m,n)(); print(n,"ok",time.process_time()-t)
    except BaseException as e: print(n,"FAIL",str(e)[-1500:])
